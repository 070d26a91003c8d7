// Package finding collects what an analyser found out about one text and turns
// it into a verdict: the highest level wins, the most dangerous reason stands
// first, and nothing is said twice.
package finding

import (
	"fmt"
	"slices"
	"sort"

	"sallyport.dev/sallyport"
)

// Bounds on what a verdict carries: it is shown to people and kept in records.
const (
	maxReasons = 32
	maxObjects = 64
	maxName    = 256 // bytes of one object's name
)

// A List is what was found so far. The zero value is ready: it says low.
type List struct {
	items   []item
	objects []string
}

type item struct {
	level  sallyport.Level
	lost   bool
	reason string
}

// Add notes an effect of a level. The reason is a short plain sentence.
func (l *List) Add(level sallyport.Level, format string, args ...any) {
	l.add(item{level: level, reason: fmt.Sprintf(format, args...)})
}

// Lost notes an effect that its caller cannot undo.
func (l *List) Lost(format string, args ...any) {
	l.add(item{level: sallyport.Critical, lost: true, reason: fmt.Sprintf(format, args...)})
}

func (l *List) add(it item) {
	it.reason = clip(it.reason, 2*maxName)
	if !slices.Contains(l.items, it) {
		l.items = append(l.items, it)
	}
}

// Object notes the name of something that the text touches, as it is written.
func (l *List) Object(name string) {
	name = clip(name, maxName)
	if name != "" && len(l.objects) < maxObjects && !slices.Contains(l.objects, name) {
		l.objects = append(l.objects, name)
	}
}

// Merge adds another verdict.
func (l *List) Merge(r sallyport.Risk) {
	for _, reason := range r.Reasons {
		l.add(item{level: r.Level, lost: r.Irreversible, reason: reason})
	}
	if len(r.Reasons) == 0 && (r.Level > sallyport.Low || r.Irreversible) {
		l.add(item{level: r.Level, lost: r.Irreversible, reason: "another part of it is " + r.Level.String()})
	}
	for _, o := range r.Objects {
		l.Object(o)
	}
}

// Append adds everything that o found, each with its own level.
func (l *List) Append(o *List) {
	for _, it := range o.items {
		l.add(it)
	}
	for _, name := range o.objects {
		l.Object(name)
	}
}

// Empty tells whether nothing was found so far.
func (l *List) Empty() bool { return len(l.items) == 0 }

// Level is the verdict's level so far.
func (l *List) Level() sallyport.Level {
	top := sallyport.Low
	for _, it := range l.items {
		top = max(top, it.level)
	}
	return top
}

// Risk is the verdict. Reasons and Objects are never nil.
func (l *List) Risk() sallyport.Risk {
	items := slices.Clone(l.items)
	sort.SliceStable(items, func(i, j int) bool {
		if items[i].lost != items[j].lost {
			return items[i].lost
		}
		return items[i].level > items[j].level
	})
	r := sallyport.Risk{Reasons: []string{}, Objects: []string{}}
	for _, it := range items {
		r.Level = max(r.Level, it.level)
		r.Irreversible = r.Irreversible || it.lost
		switch {
		case slices.Contains(r.Reasons, it.reason):
		case len(r.Reasons) < maxReasons:
			r.Reasons = append(r.Reasons, it.reason)
		case len(r.Reasons) == maxReasons:
			r.Reasons = append(r.Reasons, "and more of the kind")
		}
	}
	r.Objects = append(r.Objects, l.objects...)
	return r
}

// One is the verdict of a single finding.
func One(level sallyport.Level, format string, args ...any) sallyport.Risk {
	var l List
	l.Add(level, format, args...)
	return l.Risk()
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
