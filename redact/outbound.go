package redact

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact/encoded"
	"sallyport.dev/sallyport/redact/known"
	"sallyport.dev/sallyport/redact/visible"
)

// A Known is a secret that is known by its value.
type Known = known.Secret

func stored(k Known, s string, spans []span) []span {
	if len(k.Value) < known.Min {
		return spans
	}
	return told(spans, known.Find(s, k), "stored secret ")
}

// told adds hits to spans.
func told(spans []span, hits []known.Hit, prefix string) []span {
	for _, h := range hits {
		spans = append(spans, span{start: h.Start, end: h.End, name: prefix + h.Name, rank: rankOwn})
	}
	return spans
}

// know has w search for the secrets that can stand in raw.
func (w *work) know(all func() []Known, raw []byte) {
	if all == nil {
		return
	}
	w.stored = all()
	w.forms = w.cache.Of(w.stored)
	escapes := bytes.Contains(raw, []byte(`\u`)) || visible.Index(string(raw)) >= 0 // either can tear a value apart
	for _, k := range w.stored {
		body := quote(nil, k.Value)
		if escapes || bytes.Contains(raw, []byte(k.Value)) || bytes.Contains(raw, body[1:len(body)-1]) {
			w.known = append(w.known, k)
		}
	}
	var whose []string
	w.parts, whose = known.Cut(raw, w.stored)
	for _, name := range whose {
		w.cut = append(w.cut, "flag: stored secret "+name+" in parts")
	}
}

// recall has w mask what would complete a secret for a reader, with what the
// reader got before.
func (w *work) recall(m *known.Memory, reader string, raw []byte) {
	if reader == "" || len(w.stored) == 0 {
		return
	}
	if !bytes.Contains(raw, []byte(`\u`)) && !m.May(string(raw), w.stored) {
		return // no need to read it as JSON
	}
	w.recallText(m, reader, known.Texts(raw))
}

func (w *work) recallText(m *known.Memory, reader, text string) {
	if reader == "" || len(w.stored) == 0 {
		return
	}
	if bare, at := visible.Strip(text); at != nil {
		text = bare
	}
	whole := []byte(text)
	for _, h := range w.forms.Find(text) { // masked as it is
		for i := h.Start; i < h.End; i++ {
			whole[i] = 0
		}
	}
	parts, whose := m.Rest(reader, string(whole), w.stored)
	w.parts = append(w.parts, parts...)
	for _, name := range whose {
		w.cut = append(w.cut, "flag: stored secret "+name+" in parts over several results")
	}
}

const (
	maxOutbound  = 1 << 20 // bytes of arguments that are looked through
	maxLayers    = 4       // encodings around a secret
	maxLeaks     = 16      // that are told
	maxUnpacking = 4       // times the arguments' size, in decoded bytes
)

// Secrets finds secrets in canonical arguments that are about to leave: the
// formats that results are masked for, and the known ones; as they are, or
// percent-encoded, in hex, base64, HTML entities, backslash escapes or JSON
// within strings, a few layers deep. A part names the place, the kind and a
// fingerprint, never the secret. whole is false where there was more than is
// looked through.
func (s *Sanitiser) Secrets(args json.RawMessage) (parts []sallyport.Part, whole bool) {
	w, err := s.work(false)
	if err != nil {
		return nil, false
	}
	w.pii, w.b64 = PII{}, 0
	o := &outbound{work: w, print: s.opt.Fingerprint, budget: maxUnpacking * max(len(args), 4<<10)}
	if s.opt.Known != nil {
		o.known = s.opt.Known()
		o.forms = s.indexes.Of(o.known)
	}
	whole = len(args) <= maxOutbound
	o.document(args[:min(len(args), maxOutbound)], "", 0)
	return o.parts, whole && o.budget >= 0
}

// An outbound is one set of arguments being looked through.
type outbound struct {
	work   *work
	known  []Known
	forms  *known.Index
	print  func(string) string
	parts  []sallyport.Part
	budget int // bytes that may still be decoded
}

// document looks through JSON. What is cut off in the middle is looked through
// as far as it goes.
func (o *outbound) document(raw []byte, path string, layer int) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	key := ""
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return
		}
		if tok.Kind() != '"' {
			if tok.Kind() == '0' {
				o.text(tok.String(), "", path+string(dec.StackPointer()), layer)
			}
			key = ""
			continue
		}
		value := tok.String()
		if kind, n := dec.StackIndex(dec.StackDepth()); kind == '{' && n%2 == 1 {
			key = value
			o.text(value, "", path+string(dec.StackPointer()), layer)
			continue
		}
		o.text(value, key, path+string(dec.StackPointer()), layer)
		key = ""
	}
}

// text looks at one text, and at what it is in other encodings.
func (o *outbound) text(s, key, path string, layer int) {
	if s == "" || len(o.parts) >= maxLeaks {
		return
	}
	if key != "" && layer == 0 && hint(key) {
		if name := secretKey(key, s); name != "" {
			o.leak(path, name, s)
			return
		}
		head := key + `="`
		o.spans(head+s+`"`, len(head), len(head)+len(s), path)
	}
	bare, _ := visible.Strip(s)
	o.spans(bare, 0, len(bare), path)
	for _, h := range o.forms.Find(bare) { // also where other text is glued to an encoded one, and spoils its decoding
		for _, k := range o.known {
			if name := "stored secret " + k.Name; strings.HasSuffix(h.Name, name) {
				o.leak(path, name, k.Value)
			}
		}
	}
	if layer >= maxLayers {
		return
	}
	for _, view := range encoded.Views(bare) {
		if o.budget -= len(view); o.budget < 0 {
			return
		}
		if t := strings.TrimSpace(view); t != "" && (t[0] == '{' || t[0] == '[' || t[0] == '"') && json.Valid([]byte(t)) {
			o.document([]byte(t), path, layer+1)
			continue
		}
		o.text(view, "", path, layer+1)
	}
}

func (o *outbound) spans(s string, from, to int, path string) {
	for _, sp := range o.work.look(s) {
		start, end := max(sp.start, from), min(sp.end, to)
		if start < end {
			o.leak(path, sp.name, s[start:end])
		}
	}
}

func (o *outbound) leak(path, name, value string) {
	text := name + ", fingerprint " + o.print(value)
	names := strings.Split(path, "/")
	for i := range names { // a name can be a secret, too
		plain := o.work.clean(sallyport.PointerName(names[i]))
		if hits := o.forms.Find(plain); len(hits) > 0 {
			plain = markOpen + hits[0].Name + markClose
		}
		names[i] = sallyport.PointerToken(plain)
	}
	path = strings.Join(names, "/")
	for _, p := range o.parts {
		if p.Text == text {
			return
		}
	}
	if len(o.parts) < maxLeaks {
		o.parts = append(o.parts, sallyport.Part{Path: path, Label: "secret", Text: text})
	}
}
