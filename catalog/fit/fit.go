// Package fit makes what a server lists fit for clients that hold every member
// against the protocol's own schema and refuse a whole list for one that differs:
// else the slip of one server would take away the things of all.
//
// What fits stays as it was, byte for byte. Of the rest, members that need not be
// there go, and schemas get another spelling that means the same.
package fit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport/wire"
)

// Tool returns a tool's definition as clients take it, and which of its members
// are not as the server wrote them.
func Tool(raw json.RawMessage) (json.RawMessage, []string) { return tool.listed(raw) }

// Resource is Tool for a resource. One without a name is called by its address.
func Resource(raw json.RawMessage) (json.RawMessage, []string) {
	return resource.listed(called(raw, "uri"))
}

// Template is Resource for a template.
func Template(raw json.RawMessage) (json.RawMessage, []string) {
	return resource.listed(called(raw, "uriTemplate"))
}

// Prompt is Tool for a prompt.
func Prompt(raw json.RawMessage) (json.RawMessage, []string) { return prompt.listed(raw) }

// called gives the name that is missing.
func called(raw json.RawMessage, key string) json.RawMessage {
	if _, ok := wire.String(wire.Member(raw, "name")); ok {
		return raw
	}
	if out, err := wire.SetMember(raw, "name", wire.Member(raw, key)); err == nil {
		return out
	}
	return raw
}

// A shape is what the protocol says of one value: a scalar that fits, a list, an
// object some members of which are known, or what somebody else spells.
type shape struct {
	fits    func(json.RawMessage) bool
	element *shape
	members map[string]shape
	needs   string // the member without which the object is none
	spell   func(json.RawMessage) (json.RawMessage, bool)
}

// The shapes of revisions 2025-03-26 to 2026-07-28, which do not contradict each
// other. What they do not name is anybody's own.
var (
	text   = shape{fits: func(v json.RawMessage) bool { _, ok := wire.String(v); return ok }}
	truth  = shape{fits: func(v json.RawMessage) bool { return string(v) == "true" || string(v) == "false" }}
	object = shape{members: map[string]shape{}}
	texts  = shape{element: &text}
	count  = shape{spell: whole}
	share  = shape{fits: func(v json.RawMessage) bool {
		f, err := strconv.ParseFloat(string(v), 64)
		return err == nil && f >= 0 && f <= 1
	}}
	moment = shape{fits: func(v json.RawMessage) bool {
		s, ok := wire.String(v)
		_, err := time.Parse(time.RFC3339, s)
		return ok && err == nil
	}}

	icon  = shape{needs: "src", members: map[string]shape{"src": text, "mimeType": text, "sizes": texts, "theme": oneOf("light", "dark")}}
	icons = shape{element: &icon}
	role  = oneOf("user", "assistant")
	notes = shape{members: map[string]shape{"audience": {element: &role}, "priority": share, "lastModified": moment}}

	tool = shape{members: map[string]shape{
		"title": text, "description": text, "icons": icons, "_meta": object,
		"inputSchema": {spell: input}, "outputSchema": {spell: output},
		"annotations": {members: map[string]shape{
			"title": text, "readOnlyHint": truth, "destructiveHint": truth, "idempotentHint": truth, "openWorldHint": truth,
		}},
		"execution": {members: map[string]shape{"taskSupport": oneOf("required", "optional", "forbidden")}},
	}}
	resource = shape{members: map[string]shape{
		"title": text, "description": text, "mimeType": text, "size": count, "annotations": notes, "icons": icons, "_meta": object,
	}}
	argument = shape{needs: "name", members: map[string]shape{"name": text, "title": text, "description": text, "required": truth}}
	prompt   = shape{members: map[string]shape{
		"title": text, "description": text, "arguments": {element: &argument}, "icons": icons, "_meta": object,
	}}
)

func oneOf(all ...string) shape {
	return shape{fits: func(v json.RawMessage) bool { s, ok := wire.String(v); return ok && slices.Contains(all, s) }}
}

// whole is a number of bytes, which programs read into whole numbers.
func whole(v json.RawMessage) (json.RawMessage, bool) {
	digits, zeros, _ := strings.Cut(string(v), ".")
	n, err := strconv.ParseUint(digits, 10, 64)
	return json.RawMessage(digits), err == nil && n <= 1<<53 && strings.Trim(zeros, "0") == ""
}

// listed fits a thing that is listed, which is an object.
func (s shape) listed(raw json.RawMessage) (json.RawMessage, []string) {
	var changed []string
	out, _ := s.fit(raw, "", &changed)
	return out, changed
}

// fit returns a value as it may be; ok is false where it may not be at all.
// The places of what differs are added to changed.
func (s shape) fit(raw json.RawMessage, at string, changed *[]string) (out json.RawMessage, ok bool) {
	switch {
	case s.fits != nil:
		return raw, s.fits(raw)
	case s.spell != nil:
		out, ok = s.spell(raw)
		if ok && string(out) != string(raw) {
			*changed = append(*changed, at)
		}
		return out, ok
	case s.element != nil:
		return s.list(raw, at, changed)
	}
	if !wire.IsObject(raw) {
		return nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(s.members)) {
		v := wire.Member(raw, name)
		if v == nil {
			continue
		}
		place := strings.TrimPrefix(at+"."+name, ".")
		fitted, ok := s.members[name].fit(v, place, changed)
		next, err := raw, error(nil)
		switch {
		case !ok:
			if !wire.IsNull(v) { // which says nothing
				*changed = append(*changed, place)
			}
			next, err = wire.RemoveMember(raw, name)
		case string(fitted) != string(v):
			next, err = wire.SetMember(raw, name, fitted)
		}
		if err != nil { // it was found: raw is an object
			return nil, false
		}
		raw = next
	}
	return raw, s.needs == "" || wire.Member(raw, s.needs) != nil
}

// list fits each element; those that may not be go.
func (s shape) list(raw json.RawMessage, at string, changed *[]string) (json.RawMessage, bool) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	out, same, i := []byte{'['}, true, 0
	for v := range wire.Elements(raw) {
		place := fmt.Sprintf("%s[%d]", at, i)
		i++
		fitted, ok := s.element.fit(v, place, changed)
		if same = same && ok && string(fitted) == string(v); !ok {
			*changed = append(*changed, place)
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, fitted...)
	}
	if same {
		return raw, true
	}
	return append(out, ']'), true
}
