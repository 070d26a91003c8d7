package redact

import (
	"sort"
	"strings"

	"sallyport.dev/sallyport/redact/encoded"
	"sallyport.dev/sallyport/redact/known"
	"sallyport.dev/sallyport/redact/visible"
)

// A work is one document being cleaned: what to do, and what was done.
type work struct {
	rules *rules
	pii   PII
	b64   int                 // longest base64 run to look into, in bytes of the run; 0 = none
	show  bool                // make hidden characters visible
	links func(string) string // takes the harm out of links, in texts that clients show; or nil
	tally tally

	known  []Known  // by value, that stand in the document
	stored []Known  // all of them, for what is encoded in it
	parts  []Known  // of those that the document's texts cut in two
	cut    []string // what to say of that

	cache *known.Cache
	forms *known.Index // of all of them in the usual encodings
}

// clean masks s and makes it visible. It returns s itself if nothing was to do.
func (w *work) clean(s string) string {
	return w.finish(s, w.spans(s))
}

func (w *work) finish(s string, spans []span) string {
	out := mask(s, spans, &w.tally)
	if w.show {
		var n visible.Counts
		out, n = visible.Text(out)
		w.tally.hidden.Add(n)
	}
	return out
}

// spans finds what to mask in s. Hidden characters and terminal escapes could
// tear a secret apart, so where there are any the text is read without them too.
func (w *work) spans(s string) []span {
	spans := w.look(s)
	if bare, at := visible.Strip(s); at != nil {
		for _, sp := range w.look(bare) {
			sp.start, sp.end, sp.rank = at[sp.start], at[sp.end-1]+1, sp.rank+rankStripped
			spans = append(spans, sp)
		}
		spans = merge(spans)
	}
	return spans
}

func (w *work) look(s string) []span {
	spans, instruct := w.rules.scan(s)
	w.tally.instruct = w.tally.instruct || instruct
	for _, k := range w.known {
		spans = stored(k, s, spans)
	}
	spans = told(spans, w.forms.Find(s), "")
	for _, p := range w.parts {
		spans = told(spans, known.Find(s, p), "part of stored secret ")
	}
	if len(w.stored) > 0 && len(spans) > 1 {
		spans = merge(spans)
	}
	n := len(spans)
	if w.b64 > 0 {
		spans = w.base64(s, spans)
	}
	for _, sp := range w.pii.spans(s, nil) {
		// The host of a URL beside its password looks like an address.
		if !overlaps(spans[:n], sp) {
			spans = append(spans, sp)
		}
	}
	if len(spans) > n {
		return merge(spans)
	}
	return spans
}

// overlaps reports whether sp overlaps any of spans, which are sorted and
// disjoint.
func overlaps(spans []span, sp span) bool {
	i := sort.Search(len(spans), func(i int) bool { return spans[i].end > sp.start })
	return i < len(spans) && spans[i].start < sp.end
}

// mask replaces each span by its marker. spans are sorted and disjoint.
func mask(s string, spans []span, t *tally) string {
	if len(spans) == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	last := 0
	for _, sp := range spans {
		b.WriteString(s[last:sp.start])
		b.WriteString(markOpen + sp.name + markClose)
		t.masked(sp.name)
		last = sp.end
	}
	b.WriteString(s[last:])
	return b.String()
}

const minBase64 = 24

// base64 looks into runs of base64 that hold readable text, and masks a run
// whole if there is a secret in it.
func (w *work) base64(s string, spans []span) []span {
	for i := 0; i < len(s); {
		if !encoded.Base64Byte(s[i]) {
			i++
			continue
		}
		start := i
		for i < len(s) && encoded.Base64Byte(s[i]) {
			i++
		}
		run := s[start:i]
		for i < len(s) && s[i] == '=' {
			i++
		}
		if len(run) < minBase64 || len(run) > w.b64 || !encoded.Readable(run[:minBase64]) {
			continue
		}
		plain := encoded.Base64(run)
		found, instruct := w.rules.scan(plain)
		w.tally.instruct = w.tally.instruct || instruct
		for _, k := range w.stored {
			found = stored(k, plain, found)
		}
		if len(found) > 0 {
			spans = append(spans, span{start: start, end: i, name: "base64 of " + found[0].name, rank: rankOwn})
		}
	}
	return spans
}
