// Package inline deals with binary data in results: images that a server sends as
// text, in base64 that no model can read, and images that are as large as images
// are.
package inline

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport/wire"
)

// Bounds, in bytes of base64.
const (
	minImage = 1 << 10  // a shorter run is not looked at
	minData  = 64 << 10 // binary data of no known kind that is taken out of a text
	maxFound = 8        // images that one text can become
	minKinds = 40       // letters that data of no known kind has, of 64: hexadecimal and sequences of genes have fewer
)

// kindOf is the media type of an image, by how it begins; "" if it is none.
func kindOf(data []byte) string {
	for begins, media := range map[string]string{"\x89PNG\r\n\x1a\n": "image/png", "\xff\xd8\xff": "image/jpeg", "GIF87a": "image/gif", "GIF89a": "image/gif"} {
		if bytes.HasPrefix(data, []byte(begins)) {
			return media
		}
	}
	if len(data) > 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP" {
		return "image/webp"
	}
	return ""
}

// Lift turns images in texts of a result into images, and takes long runs of other
// binary data out. A result without any comes back as the same bytes. notes say
// what was done.
func Lift(result json.RawMessage) (lifted json.RawMessage, notes []string) {
	if len(result) < minImage {
		return result, nil
	}
	return each(result, func(block json.RawMessage) ([]json.RawMessage, string) {
		kind, _ := wire.String(wire.Member(block, "type"))
		text, ok := wire.String(wire.Member(block, "text"))
		if kind != "text" || !ok || len(text) < minImage {
			return nil, ""
		}
		left, images, data := apart(text)
		if left == text {
			return nil, ""
		}
		var out []json.RawMessage
		if strings.TrimSpace(left) != "" || len(images) == 0 {
			if b, err := wire.SetMember(block, "text", wire.Quote(left)); err == nil {
				out = append(out, b)
			}
		}
		out = append(out, images...)
		return out, fmt.Sprintf("base64 in a text: images %d, other data %d", len(images), data)
	})
}

// apart takes the data out of a text. What it leaves says so.
func apart(text string) (left string, images []json.RawMessage, data int) {
	var out strings.Builder
	last := 0
	for i := 0; i < len(text); {
		if !digit(text[i]) {
			i++
			continue
		}
		from := i
		i = run(text, i)
		if i-from < minImage {
			continue
		}
		raw := strings.NewReplacer("\n", "", "\r", "", " ", "", "-", "+", "_", "/").Replace(text[from:i])
		start := from
		media := ""
		if head := strings.LastIndex(text[max(0, from-100):from], "data:"); head >= 0 && strings.HasSuffix(text[:from], ";base64,") {
			start = max(0, from-100) + head
			media, _, _ = strings.Cut(text[start+5:from], ";")
		}
		plain, err := decode(raw)
		known := kindOf(plain)
		switch {
		case err != nil || known == "" && (len(raw) < minData || kinds(raw) < minKinds || utf8.Valid(plain)):
			continue // text in base64 is read by whoever looks for secrets
		case known != "" && len(images) < maxFound:
			media = known
			images = append(images, image(media, plain))
		default:
			data++
		}
		if media == "" || len(media) > 64 {
			media = "binary data"
		}
		out.WriteString(text[last:start])
		if start > 0 || i < len(text) || known == "" {
			fmt.Fprintf(&out, "[%s: %d bytes]", media, len(plain))
		}
		last = i
	}
	if last == 0 {
		return text, nil, 0
	}
	return out.String() + text[last:], images, data
}

// kinds is how many letters a text is made of.
func kinds(text string) (n int) {
	var seen [256]bool
	for i := range len(text) {
		if !seen[text[i]] {
			seen[text[i]] = true
			n++
		}
	}
	return n
}

func digit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_'
}

// run returns where the base64 that begins at i ends, over ends of lines too.
func run(text string, i int) int {
	for line := i; i < len(text); {
		switch c := text[i]; {
		case digit(c):
			i++
			continue
		case c == '=':
			for i < len(text) && text[i] == '=' {
				i++
			}
			return i
		case (c == '\n' || c == '\r') && i-line >= 60:
			for i < len(text) && (text[i] == '\n' || text[i] == '\r') {
				i++
			}
			line = i
			continue
		}
		return i
	}
	return i
}

func decode(raw string) ([]byte, error) {
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(raw, "="))
}

func image(media string, data []byte) json.RawMessage {
	b, _ := json.Marshal(struct { // strings
		Type string `json:"type"`
		Data string `json:"data"`
		Mime string `json:"mimeType"`
	}{"image", base64.StdEncoding.EncodeToString(data), media})
	return b
}

// A Shelf keeps the data of images and sound aside while the rest of a result is
// cleaned and bounded: they have a bound of their own.
type Shelf struct {
	data map[string][]byte // by what stands in their place
}

// Put takes the data of images and sound, each at most max bytes decoded and all of
// them together at most twice that, out of a result. Larger ones are left out, with a
// word in their place. What is no binary data stays where it is.
func (s *Shelf) Put(result json.RawMessage, max int) (json.RawMessage, []string) {
	total := 0
	return each(result, func(block json.RawMessage) ([]json.RawMessage, string) {
		kind, _ := wire.String(wire.Member(block, "type"))
		raw := wire.Member(block, "data")
		if kind != "image" && kind != "audio" || len(raw) < minImage || raw[0] != '"' || bytes.IndexByte(raw, '\\') >= 0 {
			return nil, ""
		}
		data := raw[1 : len(raw)-1]
		plain, err := base64.StdEncoding.DecodeString(string(data))
		if err != nil || utf8.Valid(plain) {
			return nil, ""
		}
		if total += len(plain); len(plain) > max || total > 2*max {
			media, _ := wire.String(wire.Member(block, "mimeType"))
			said := fmt.Sprintf("[%s of %d bytes left out: at most %d are taken]", media[:min(len(media), 64)], len(plain), max)
			return []json.RawMessage{append(append([]byte(`{"type":"text","text":`), wire.Quote(said)...), '}')}, "an image that is too large"
		}
		mark := fmt.Sprintf("kept aside %d", len(s.data))
		if bytes.Contains(result, []byte(mark)) { // whoever knows the mark keeps the data where it is
			return nil, ""
		}
		if s.data == nil {
			s.data = map[string][]byte{}
		}
		s.data[mark] = data
		out, err := wire.SetMember(block, "data", wire.Quote(mark))
		if err != nil {
			return nil, ""
		}
		return []json.RawMessage{out}, ""
	})
}

// Take puts the data back.
func (s *Shelf) Take(result json.RawMessage) json.RawMessage {
	for mark, data := range s.data {
		result = bytes.Replace(result, wire.Quote(mark), slices.Concat([]byte{'"'}, data, []byte{'"'}), 1)
	}
	return result
}

// each replaces blocks of a result's content. nil keeps a block as it is.
func each(result json.RawMessage, change func(json.RawMessage) ([]json.RawMessage, string)) (json.RawMessage, []string) {
	content := wire.Member(result, "content")
	if len(content) == 0 || content[0] != '[' {
		return result, nil
	}
	out, changed := []byte{'['}, false
	var notes []string
	for block := range wire.Elements(content) {
		blocks, note := change(block)
		if note != "" {
			notes = append(notes, note)
		}
		if changed = changed || blocks != nil; blocks == nil {
			blocks = []json.RawMessage{block}
		}
		for _, b := range blocks {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, b...)
		}
	}
	if !changed {
		return result, notes
	}
	whole, err := wire.SetMember(result, "content", append(out, ']'))
	if err != nil {
		return result, notes
	}
	return whole, notes
}

// texts rewrites every text that a client shows of a result: that of texts, and of
// resources in it.
func texts(result json.RawMessage, rewrite func(string) string) json.RawMessage {
	out, _ := each(result, func(block json.RawMessage) ([]json.RawMessage, string) {
		path := []string{"text"}
		if kind, _ := wire.String(wire.Member(block, "type")); kind == "resource" {
			path = []string{"resource", "text"}
			if media, _ := wire.String(wire.Path(block, "resource", "mimeType")); strings.Contains(media, "profile=mcp-app") {
				return nil, "" // a page that clients run in a sandbox of its own, and in nothing else
			}
		}
		text, ok := wire.String(wire.Path(block, path...))
		if !ok {
			return nil, ""
		}
		clean := rewrite(text)
		if clean == text {
			return nil, ""
		}
		b, err := wire.SetPath(block, wire.Quote(clean), path...)
		if err != nil {
			return nil, ""
		}
		return []json.RawMessage{b}, ""
	})
	return out
}
