package change

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact/visible"
)

// Lines tells in readable lines how one definition differs from another. Each
// line is one place; hidden characters are written as escapes. "" means no
// difference; nil stands for nothing at all.
func Lines(before, after json.RawMessage) string {
	var old any
	if before != nil {
		old = decode(before)
	}
	var d differ
	d.compare("", old, decode(after))
	return d.b.String()
}

func decode(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw) // a damaged pin is shown as it is
	}
	return v
}

type differ struct{ b strings.Builder }

func (d *differ) compare(path string, old, new any) {
	if m, ok := old.(map[string]any); ok {
		if n, ok := new.(map[string]any); ok {
			d.objects(path, m, n)
			return
		}
	}
	if a, ok := old.([]any); ok {
		if b, ok := new.([]any); ok {
			for i := range max(len(a), len(b)) {
				d.compare(path+"/"+strconv.Itoa(i), at(a, i), at(b, i))
			}
			return
		}
	}
	if show(old) != show(new) {
		d.line(path, old, new)
	}
}

// absent is the value of what is not there; nil is JSON's null.
type absent struct{}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return absent{}
}

func (d *differ) objects(path string, old, new map[string]any) {
	names := maps.Clone(old)
	maps.Copy(names, new)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, inOld := old[name]
		b, inNew := new[name]
		if !inOld {
			a = absent{}
		}
		if !inNew {
			b = absent{}
		}
		d.compare(path+"/"+sallyport.PointerToken(name), a, b)
	}
}

func (d *differ) line(path string, old, new any) {
	where := visible.String(path)
	_, added := old.(absent)
	_, removed := new.(absent)
	switch {
	case added || old == nil && path == "":
		fmt.Fprintf(&d.b, "+ %s: %s\n", where, show(new))
	case removed:
		fmt.Fprintf(&d.b, "- %s: %s\n", where, show(old))
	default:
		a, b := apart(show(old), show(new))
		fmt.Fprintf(&d.b, "~ %s: %s -> %s\n", where, a, b)
	}
}

// Long values are shown from a little before to a little after what differs.
const (
	long    = 160
	context = 48
)

func apart(a, b string) (string, string) {
	if len(a) < long && len(b) < long {
		return a, b
	}
	from := 0
	for from < min(len(a), len(b)) && a[from] == b[from] {
		from++
	}
	same := 0
	for same < min(len(a), len(b))-from && a[len(a)-1-same] == b[len(b)-1-same] {
		same++
	}
	return cut(a, from-context, len(a)-same+context), cut(b, from-context, len(b)-same+context)
}

// cut is s from one byte to another, with a mark where something is left out.
func cut(s string, from, to int) string {
	for from > 0 && !utf8.RuneStart(s[from]) {
		from--
	}
	for to < len(s) && !utf8.RuneStart(s[to]) {
		to++
	}
	before, after := "", ""
	if from > 0 {
		s, to, before = s[from:], to-from, "…"
	}
	if to < len(s) {
		s, after = s[:to], "…"
	}
	return before + s + after
}

// show writes a value as JSON in which everything hidden is an escape.
func show(v any) string {
	if _, ok := v.(absent); ok {
		return "(absent)"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "(unreadable)"
	}
	return visible.String(string(b))
}
