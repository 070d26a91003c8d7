// Package finding collects what an analyser found out about one text and turns
// it into a verdict: the highest level wins, the most dangerous reason stands
// first, and nothing is said twice.
package finding

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"unicode/utf8"

	"sallyport.dev/sallyport"
)

// MaxText bounds one text of SQL, or one shell script, in bytes. No parser takes
// as long as a second for so much, whatever it is; what is longer is critical.
const MaxText = 64 << 10

// Bounds on what a verdict carries: it is shown to people and kept in records.
const (
	maxReasons = 32
	maxObjects = 64
	maxName    = 256 // bytes of one object's name
	maxEffects = 16
	maxParts   = 32
	maxPart    = 4096 // bytes of one; what shows it shortens it for the eye, and says so
	maxTexts   = 24 << 10
	maxLabel   = 64  // bytes
	maxAmounts = 256 // more cannot be counted, so they are critical
)

// A List is what was found so far. The zero value is ready: it says low.
type List struct {
	items   []item
	objects []string
	effects []string
	parts   []sallyport.Part
	texts   int  // bytes of the parts
	more    bool // there were more parts than are kept
	amounts []sallyport.Amount
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

// Effect notes a class of effect: one of the root package's Effect constants.
func (l *List) Effect(name string) {
	if name != "" && len(l.effects) < maxEffects && !slices.Contains(l.effects, name) {
		l.effects = append(l.effects, name)
	}
}

// Part notes a piece of the arguments that a human must see first. path is a
// JSON Pointer into the arguments, or "". Parts are shown in the order in which
// they are noted: the most dangerous first.
func (l *List) Part(path, label, text string) {
	most := maxPart
	if l.texts > maxTexts {
		most = 2 * maxName
	}
	p := sallyport.Part{Path: clip(path, maxName), Label: clip(label, maxLabel), Text: clip(text, most)}
	switch {
	case text == "" || slices.Contains(l.parts, p):
	case label == sallyport.PartsLeftOut || len(l.parts) >= maxParts:
		l.more = true
	default:
		l.parts, l.texts = append(l.parts, p), l.texts+len(p.Text)
	}
}

// Amount notes money that is moved. The same amount twice is twice the money.
func (l *List) Amount(a sallyport.Amount) {
	if len(l.amounts) == maxAmounts {
		l.Add(sallyport.Critical, "moves more than %d amounts, too many to count", maxAmounts)
		return
	}
	a.Recipient = clip(a.Recipient, maxName)
	l.amounts = append(l.amounts, a)
}

// Merge adds another verdict.
func (l *List) Merge(r sallyport.Risk) {
	for _, reason := range r.Reasons {
		l.add(item{level: r.Level, lost: r.Irreversible, reason: reason})
	}
	if len(r.Reasons) == 0 && (r.Level > sallyport.Low || r.Irreversible) {
		l.add(item{level: r.Level, lost: r.Irreversible, reason: "another part of it is " + r.Level.String()})
	}
	l.carry(r.Objects, r.Effects, r.Parts, r.Amounts)
}

func (l *List) carry(objects, effects []string, parts []sallyport.Part, amounts []sallyport.Amount) {
	for _, o := range objects {
		l.Object(o)
	}
	for _, e := range effects {
		l.Effect(e)
	}
	for _, p := range parts {
		l.Part(p.Path, p.Label, p.Text)
	}
	for _, a := range amounts {
		l.Amount(a)
	}
}

// Append adds everything that o found, each with its own level.
func (l *List) Append(o *List) {
	for _, it := range o.items {
		l.add(it)
	}
	l.carry(o.objects, o.effects, o.parts, o.amounts)
}

// Join appends what several statements do, the most dangerous first. It sorts
// all.
func (l *List) Join(all []List) {
	slices.SortStableFunc(all, func(a, b List) int {
		x, y := a.Risk(), b.Risk()
		switch {
		case x.Irreversible != y.Irreversible && x.Irreversible:
			return -1
		case x.Irreversible != y.Irreversible:
			return 1
		}
		return cmp.Compare(y.Level, x.Level)
	})
	for i := range all {
		l.Append(&all[i])
	}
}

// Empty tells whether no level was found so far.
func (l *List) Empty() bool { return len(l.items) == 0 }

// Level is the verdict's level so far.
func (l *List) Level() sallyport.Level {
	top := sallyport.Low
	for _, it := range l.items {
		top = max(top, it.level)
	}
	return top
}

// Risk is the verdict. Reasons and Objects are never nil; Effects are sorted.
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
	r.Effects = slices.Sorted(slices.Values(l.effects))
	r.Parts, r.Amounts = slices.Clone(l.parts), slices.Clone(l.amounts)
	if l.more {
		r.Parts = append(r.Parts, sallyport.Part{Label: sallyport.PartsLeftOut, Text: "more parts than are listed: read the arguments"})
	}
	return r
}

// One is the verdict of a single finding.
func One(level sallyport.Level, format string, args ...any) sallyport.Risk {
	var l List
	l.Add(level, format, args...)
	return l.Risk()
}

// clip leaves the middle out of what is too long, and says how much: a tail that is
// not seen could hold what matters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head, tail := n*2/3, len(s)-n/3
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s… %d bytes more …%s", s[:head], tail-head, s[tail:])
}
