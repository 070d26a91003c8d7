// Package parts keeps the commands of a script that people must see first.
package parts

import (
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// Ranks of parts: the most dangerous is shown first.
const (
	High = iota
	Critical
	Lost
)

// Parts are the commands of a text that do more than read, as they are written.
type Parts []part

type part struct {
	rank int
	text string
}

const maxPartsKept = 256 // more are not shown anyway

// Found notes a command by what was found in it.
func (p *Parts) Found(l *finding.List, text string) {
	switch r := l.Risk(); {
	case r.Irreversible:
		p.Add(Lost, text)
	case r.Level == sallyport.Critical:
		p.Add(Critical, text)
	case r.Level == sallyport.High:
		p.Add(High, text)
	}
}

// Add notes a command of a rank.
func (p *Parts) Add(rank int, text string) {
	if len(*p) < maxPartsKept || rank == Lost {
		*p = append(*p, part{rank, strings.TrimRight(strings.TrimLeft(text, " \t\n"), "; \t\n")})
	}
}

// Note tells them to l, the most dangerous first.
func (p Parts) Note(l *finding.List) {
	slices.SortStableFunc(p, func(a, b part) int { return b.rank - a.rank })
	for _, part := range p {
		l.Part("", "command", part.text)
	}
}
