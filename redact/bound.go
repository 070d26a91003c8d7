package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// reserve is kept free for braces, isError and the marker.
	reserve = 512
	// overlap is how much more of a text is read than can be kept, so that a
	// secret on the edge is seen whole. Longer secrets are cut off whole.
	overlap = 16 << 10
)

// bounded cleans a CallToolResult that is too large and cuts it to limit bytes.
// Content is kept from the front; the rest of what there is to say is kept
// only while it leaves half of the room to the content. raw has the right
// shape already.
func (w *work) bounded(raw []byte, limit int) ([]byte, error) {
	members, err := split(raw)
	if err != nil {
		return nil, err
	}
	w.tally.cut = true
	room := limit - reserve
	values := make([][]byte, len(members))
	for i, m := range members {
		switch {
		case m.name == "content":
			continue
		case m.name == "structuredContent":
			values[i], err = w.structured(m.value, room/2)
		case len(m.name)+len(m.value) > room/8:
			continue // dropped
		default:
			values[i], err = newCopier(m.value, w).document()
		}
		if err != nil {
			return nil, err
		}
		if room -= len(values[i]) + 6*len(m.name) + 4; room < 0 {
			values[i], room = nil, 0
		}
	}
	out := []byte{'{'}
	for i, m := range members {
		if m.name == "content" {
			if values[i], err = w.contents(m.value, room); err != nil {
				return nil, err
			}
		}
		if values[i] == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = quote(out, w.clean(m.name))
		out = append(append(out, ':'), values[i]...)
	}
	return append(out, '}'), nil
}

func (w *work) structured(raw []byte, room int) ([]byte, error) {
	if len(raw) <= room {
		clean, err := newCopier(raw, w).document()
		if err != nil || len(clean) <= room {
			return clean, err
		}
	}
	if clean := w.cutMembers(raw, room); clean != nil {
		return clean, nil
	}
	return fmt.Appendf(nil, `{"truncated":true,"kept_bytes":0,"total_bytes":%d}`, len(raw)), nil
}

// What of structured content is kept whole, and how many members are looked at:
// an exit code must not be lost because of a long output beside it.
const (
	smallMember = 1 << 10
	maxMembers  = 64
)

// cutMembers keeps the small members of an object and the beginnings of its long
// texts. It returns nil for what cannot be cut so.
func (w *work) cutMembers(raw []byte, room int) []byte {
	members, err := split(raw)
	if err != nil || len(members) > maxMembers {
		return nil
	}
	values, texts := make([][]byte, len(members)), 0
	room -= len(`,"truncated":true}`)
	for i, m := range members {
		room -= 6*len(m.name) + 4
		if m.name == "truncated" || len(m.value) > smallMember && m.value[0] != '"' {
			continue
		}
		c := newCopier(m.value, w)
		err := c.value(m.name) // the name may say that the value is secret
		if err == nil {
			values[i], err = c.end()
		}
		if err != nil {
			return nil
		}
		if len(values[i]) > smallMember {
			values[i] = nil
			texts++
			continue
		}
		room -= len(values[i])
	}
	if room < reserve*texts {
		return nil
	}
	out := []byte{'{'}
	for i, m := range members {
		var text string
		if values[i] == nil && m.value[0] == '"' && m.name != "truncated" && json.Unmarshal(m.value, &text) == nil {
			cut, n := w.cutText(text, room/texts-reserve/2)
			values[i] = quote(nil, cut+truncated(n, len(text)))
		}
		if values[i] == nil {
			continue
		}
		out = append(quote(out, w.clean(m.name)), ':')
		out = append(append(out, values[i]...), ',')
	}
	return append(out, `"truncated":true}`...)
}

// contents keeps blocks from the front until the room is used up.
func (w *work) contents(raw []byte, room int) ([]byte, error) {
	blocks, err := elements(raw)
	if err != nil {
		return nil, err
	}
	out := []byte{'['}
	kept, total, full, dropped := 0, 0, false, false
	add := func(b []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, b...)
		room -= len(b) + 1
	}
	for _, b := range blocks {
		total += len(b)
		if full || room < reserve {
			full, dropped = true, true
			continue
		}
		if len(b) <= room {
			clean, err := w.blockOf(b)
			if err != nil {
				return nil, err
			}
			if len(clean) <= room {
				kept += len(b)
				add(clean)
				continue
			}
		}
		full = true
		text, with, ok := w.textOf(b)
		if !ok {
			dropped = true
			continue
		}
		cut, n := w.cutText(text, room-reserve)
		kept += n
		add(with(cut + truncated(n, len(text))))
	}
	if dropped {
		add(textBlock(truncated(kept, total)))
	}
	return append(out, ']'), nil
}

func (w *work) blockOf(raw []byte) ([]byte, error) {
	c := newCopier(raw, w)
	if err := c.block(0); err != nil {
		return nil, err
	}
	return c.end()
}

func truncated(kept, total int) string {
	return "[truncated: kept " + strconv.Itoa(kept) + " of " + strconv.Itoa(total) + " bytes]"
}

func textBlock(s string) []byte {
	return append(quote([]byte(`{"type":"text","text":`), s), '}')
}

// textOf returns the text of a block, or of the resource in it, and what makes a
// block of less of it.
func (w *work) textOf(raw []byte) (text string, with func(string) []byte, ok bool) {
	var b struct {
		Type     string
		Text     *string
		Resource struct {
			URI, MimeType string
			Text          *string
		}
	}
	// The decoder ignores case; the exact names were checked by block, and a
	// wrong guess here only costs the text, never the masking.
	if err := json.Unmarshal(raw, &b); err != nil {
		return "", nil, false
	}
	switch r := b.Resource; {
	case b.Type == "text" && b.Text != nil:
		return *b.Text, textBlock, true
	case b.Type == "resource" && r.Text != nil:
		head := append(quote([]byte(`{"type":"resource","resource":{"uri":`), w.clean(r.URI)), `,"mimeType":`...)
		head = append(quote(head, w.clean(r.MimeType)), `,"text":`...)
		return *r.Text, func(s string) []byte { return append(quote(bytes.Clone(head), s), "}}"...) }, len(head) < reserve/2
	}
	return "", nil, false
}

// cutText cleans s and keeps what fits in room bytes of JSON. n counts the
// bytes kept.
func (w *work) cutText(s string, room int) (clean string, n int) {
	if room <= 0 {
		return "", 0
	}
	edge := len(s)
	if edge > room+overlap {
		s = s[:boundary(s, room+overlap)]
		edge = boundary(s, room)
	}
	var inside []span
	for _, sp := range w.spans(s) {
		if sp.start < edge {
			inside = append(inside, sp)
			edge = max(edge, sp.end)
		}
	}
	clean = w.finish(s[:edge], inside)
	clean = clean[:boundary(clean, fit(clean, room))]
	if i := strings.LastIndex(clean, markOpen); i >= 0 && !strings.Contains(clean[i:], markClose) {
		clean = clean[:i] // no half a marker
	}
	return clean, len(clean)
}

// fit returns how many bytes of s take at most room bytes as a JSON string.
func fit(s string, room int) int {
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r':
			room -= 2
		case c < ' ':
			room -= 6
		default:
			room--
		}
		if room < 0 {
			return i
		}
	}
	return len(s)
}

// boundary returns the last place at or before i where a character of s begins.
func boundary(s string, i int) int {
	if i >= len(s) {
		return len(s)
	}
	for i > 0 && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

type member struct {
	name  string
	value []byte
}

func split(raw []byte) (out []member, err error) {
	c := newCopier(raw, nil)
	c.check = true
	err = c.object(func(key string) error {
		v, err := c.dec.ReadValue()
		out = append(out, member{key, bytes.Clone(v)})
		return err
	})
	return out, err
}

func elements(raw []byte) (out [][]byte, err error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	for dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		end := int(dec.InputOffset())
		out = append(out, raw[end-len(v):end])
	}
	return out, nil
}
