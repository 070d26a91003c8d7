// Package suspect looks at what a server says of a tool for what is not meant
// for the people who read it: text that is hidden, orders to the model, words
// about other tools, schemas that point elsewhere. It is a look at strangers'
// texts, not a proof: what it does not find is pinned all the same, and a
// human sees each change.
package suspect

import (
	"encoding/json"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact/lookalike"
	"sallyport.dev/sallyport/redact/visible"
	"sallyport.dev/sallyport/wire"
)

// A Finding is one thing to be wary of.
type Finding struct {
	Where string // JSON Pointer into the definition, or "instructions"
	What  string // in words that a person reads; nothing hidden is in it as it is
	Grave bool   // nobody sees the tool before a human has looked
}

func (f Finding) String() string { return f.Where + ": " + f.What }

// Names tell what the words of a text may be names of.
type Names struct {
	Own   func(word string) bool            // a tool of the same server
	Other func(word string) (server string) // whose tool else, "" if nobody's
}

// A Judge looks at definitions. It is safe for concurrent use.
type Judge struct {
	Speaks func(text string) bool // whether a text gives orders to a model, nil if nobody can tell
}

// maxFindings bounds what is said of one tool.
const maxFindings = 16

// Look judges one definition with its server's instructions, by itself: what it
// says of tools of other servers Mentions tells. raw is valid JSON; own are the
// names of the tools of its server.
func (j Judge) Look(name string, raw json.RawMessage, instructions string, own func(string) bool) []Finding {
	l := &look{names: Names{Own: own}}
	l.each = func(path, s string) { j.prose(l, path, s) }
	if why := lookalike.Disguised(name); why != "" {
		l.add("/name", true, "the name %s", why)
	}
	l.each("instructions", instructions)
	for member, v := range wire.Members(raw) {
		l.named("/"+sallyport.PointerToken(string(member)), string(member))
		l.walk("/"+sallyport.PointerToken(string(member)), v)
	}
	for _, schema := range []string{"inputSchema", "outputSchema"} {
		if v := wire.Member(raw, schema); v != nil {
			l.references("/"+schema, v, idsIn(v, map[string]bool{}))
		}
	}
	l.icons(raw)
	return l.found
}

// Mentions finds where a definition or its server's instructions speak of tools
// of other servers.
func Mentions(raw json.RawMessage, instructions string, n Names) []Finding {
	l := &look{names: n}
	l.each = l.mentions
	l.each("instructions", instructions)
	l.walk("", raw)
	return l.found
}

type look struct {
	names Names
	each  func(path, text string) // judges one string
	found []Finding
}

func (l *look) add(where string, grave bool, format string, args ...any) {
	if len(l.found) < maxFindings {
		l.found = append(l.found, Finding{visible.String(where), visible.String(fmt.Sprintf(format, args...)), grave})
	}
}

// walk judges every string of a definition, names of members too.
func (l *look) walk(path string, raw json.RawMessage) {
	if len(l.found) >= maxFindings {
		return
	}
	if s, ok := wire.String(raw); ok {
		if strings.HasPrefix(path, "/icons/") {
			l.hides(path, s, "")
			return
		}
		l.each(path, s)
		return
	}
	if wire.IsObject(raw) {
		for name, v := range wire.Members(raw) {
			at := path + "/" + sallyport.PointerToken(string(name))
			if l.names.Other == nil {
				l.named(at, string(name))
			}
			l.walk(at, v)
		}
		return
	}
	i := 0
	for v := range wire.Elements(raw) {
		l.walk(fmt.Sprintf("%s/%d", path, i), v)
		i++
	}
}

// hides finds characters that a reader would not see, or that could move what
// they see.
func (l *look) hides(path, s, in string) bool {
	i := visible.Index(s)
	if i < 0 {
		return false
	}
	r, _, kind := visible.At(s, i)
	l.add(path, true, "hidden character U+%04X (%s)%s at byte %d", r, kind, in, i)
	return true
}

// named judges the name of a member: a model reads it as it reads the rest.
func (l *look) named(path, name string) {
	if !l.hides(path, name, " in a name") && len(name) >= minOrder {
		l.ordered(path, strings.NewReplacer("_", " ", "-", " ").Replace(name))
	}
}

// minOrder is the length of the shortest text that can give an order.
const minOrder = 12

// offscreen is a gap that pushes the rest of a text out of sight; blob is what
// nobody reads without decoding it.
var (
	offscreen = lazy(`(?:[ \t]*\r?\n){12}|[ \t\x{a0}\x{2000}-\x{200a}\x{3000}]{60}`)
	blob      = lazy(`[A-Za-z0-9+/_-]{160,}`)
)

func (j Judge) prose(l *look, path, s string) {
	if l.hides(path, s, "") || len(s) < minOrder {
		return
	}
	if at := offscreen().FindStringIndex(s); at != nil && strings.TrimSpace(s[at[1]:]) != "" {
		l.add(path, true, "text stands behind a gap that pushes it out of sight: %.80q", strings.TrimSpace(s[at[1]:]))
	}
	if b := blob().FindString(s); b != "" && !strings.HasPrefix(s, "data:") {
		l.add(path, false, "%d characters in a row that nobody can read", len(b))
	}
	if !strings.ContainsAny(s, " \t\n") && len(s) < long {
		return
	}
	if !l.ordered(path, s) && !l.sequel(path, s) && j.Speaks != nil && j.Speaks(s) {
		l.add(path, false, "it seems to give orders to the model: %.120q", s)
	}
}

// long is the length from which a text without a space in it is looked at: not
// every language has them.
const long = 36

// ordered finds what only an order says.
func (l *look) ordered(path, s string) bool {
	s = lookalike.Read(s)
	small := strings.ToLower(s)
	for _, o := range orders {
		if !has(small, o.words) {
			continue
		}
		if m := o.say().FindString(s); m != "" {
			l.add(path, true, "%s: %.120q", o.is, m)
			return true
		}
	}
	return false
}

// icons may come from the web or be in the definition, nothing else.
func (l *look) icons(raw json.RawMessage) {
	i := 0
	for icon := range wire.Elements(wire.Member(raw, "icons")) {
		if src, ok := wire.String(wire.Member(icon, "src")); ok && !strings.HasPrefix(src, "https://") && !strings.HasPrefix(src, "data:image/") && src != "data:," {
			l.add(fmt.Sprintf("/icons/%d/src", i), false, "an icon is neither https: nor an image in itself: %.80q", src)
		}
		i++
	}
}
