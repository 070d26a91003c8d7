// Package search finds tools by words, where there are too many to be listed:
// BM25 over their names, what is said of them and their arguments.
//
// Everything that counts is counted over the tools that are given, which are
// those that the asker may see: no order and no number tells of others. The same
// tools and words always give the same answer.
package search

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// What words count for, by where they stand.
const (
	inName        = 3
	inTitle       = 2
	inDescription = 1
	inArgument    = 0.5 // its name, and what is said of it
)

// The two numbers of BM25: how soon repetition stops to count, and how much less
// a word counts in a long text.
const (
	saturation = 1.2
	shortness  = 0.6
)

// An Index keeps what it has read of each tool. Its zero value is empty. It is
// safe for concurrent use.
type Index struct {
	mu    sync.RWMutex
	pages map[key]*page
}

type key struct{ profile, name string }

// A page is one tool, as words.
type page struct {
	definition json.RawMessage
	words      map[string]float64 // how much each counts
	length     float64
}

// maxPages bounds an index: what is beyond is read again.
const maxPages = 100_000

// Find returns the tools of a profile that fit a text best, at most most, the best
// first. tools are sorted by the names that they are shown by.
func (x *Index) Find(profile string, tools []sallyport.Tool, text string, most int) []sallyport.Tool {
	pages, average := x.read(profile, tools)
	asked := terms(text)
	for i, t := range asked {
		n := 0.0
		for _, p := range pages {
			if p.words[t.word] > 0 {
				n++
			}
		}
		asked[i].weight *= math.Log(1 + (float64(len(pages))-n+0.5)/(n+0.5))
	}
	type hit struct {
		at    int
		score float64
	}
	var hits []hit
	for at, p := range pages {
		score := 0.0
		for _, t := range asked {
			if tf := p.words[t.word]; tf > 0 {
				score += t.weight * tf * (saturation + 1) / (tf + saturation*(1-shortness+shortness*p.length/average))
			}
		}
		if tools[at].Shown() == text || tools[at].Name == text {
			score = math.Inf(1)
		}
		if score > 0 {
			hits = append(hits, hit{at, score})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	out := make([]sallyport.Tool, 0, min(most, len(hits)))
	for _, h := range hits[:min(most, len(hits))] {
		out = append(out, tools[h.at])
	}
	return out
}

// A term is a word that is asked for, and what it counts for.
type term struct {
	word   string
	weight float64
}

// asLike is what a word counts for that stands for another.
const asLike = 0.4

func terms(text string) []term {
	var out []term
	asked := words(text)
	for _, w := range asked {
		out = append(out, term{w, 1})
	}
	for _, w := range asked {
		for _, like := range alike[w] {
			if !slices.ContainsFunc(out, func(t term) bool { return t.word == like }) {
				out = append(out, term{like, asLike})
			}
		}
	}
	return out
}

// read returns the page of each tool, and how long pages are on average.
func (x *Index) read(profile string, tools []sallyport.Tool) (pages []*page, average float64) {
	pages = make([]*page, len(tools))
	var fresh []int
	x.mu.RLock()
	for i := range tools {
		p := x.pages[key{profile, tools[i].Name}]
		if p == nil || !bytes.Equal(p.definition, tools[i].Definition) {
			fresh = append(fresh, i)
			continue
		}
		pages[i] = p
	}
	x.mu.RUnlock()
	if len(fresh) > 0 {
		for _, i := range fresh {
			pages[i] = pageOf(tools[i])
		}
		x.mu.Lock()
		if x.pages == nil || len(x.pages)+len(fresh) > maxPages {
			x.pages = map[key]*page{}
		}
		for _, i := range fresh {
			x.pages[key{profile, tools[i].Name}] = pages[i]
		}
		x.mu.Unlock()
	}
	for _, p := range pages {
		average += p.length
	}
	return pages, max(average/float64(max(len(pages), 1)), 1)
}

// maxRead bounds how much of one text is read, so that no server makes its tools
// long on purpose.
const maxRead = 4 << 10

func pageOf(t sallyport.Tool) *page {
	p := &page{definition: t.Definition, words: map[string]float64{}}
	p.add(t.Shown(), inName)
	title, _ := wire.String(wire.Member(t.Definition, "title"))
	p.add(title, inTitle)
	said, _ := wire.String(wire.Member(t.Definition, "description"))
	p.add(said, inDescription)
	n := 0
	for name, schema := range wire.Members(wire.Path(t.Definition, "inputSchema", "properties")) {
		if n++; n > 64 {
			break
		}
		p.add(string(name), inArgument)
		said, _ := wire.String(wire.Member(schema, "description"))
		p.add(said, inArgument)
	}
	return p
}

func (p *page) add(text string, weight float64) {
	for _, w := range split(text[:min(len(text), maxRead)]) {
		p.words[w] += weight
		p.length += weight
	}
}
