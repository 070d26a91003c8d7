package redact

import (
	"strings"

	"sallyport.dev/sallyport/redact/visible"
)

// streamBack is how much of what was told already a piece is read together with.
const streamBack = 4 << 10

// openers end a line whose value may stand in the next.
const openers = "=:,\\'\"`([{"

// A stream is text that comes in pieces. Only whole lines are let out, and of
// these only such that no secret can have begun in: whatever the pieces, a
// secret is seen whole.
type stream struct {
	s      *Sanitiser
	reader string

	told string // the end of what was let out, as it was
	held string
}

// Stream returns what cleans one text that comes in pieces: it returns what can
// be told by now. What it holds back at the end is not told: the result has it.
// reader is that of Result.
func (s *Sanitiser) Stream(reader string) func(piece []byte) string {
	st := &stream{s: s, reader: reader}
	return st.next
}

func (st *stream) next(piece []byte) string {
	st.held += string(piece)
	n := settled(st.held)
	if n == 0 {
		return ""
	}
	w, err := st.s.work(true)
	if err != nil {
		return ""
	}
	text := st.told + st.held
	w.know(st.s.opt.Known, []byte(text))
	w.recallText(&st.s.memory, st.reader, text)
	back := len(st.told)
	cut := w.unfinished(text, back+n)
	spans := w.spans(text)
	for i := len(spans) - 1; i >= 0 && spans[i].end > cut; i-- {
		cut = min(cut, spans[i].start)
	}
	if cut <= back {
		return ""
	}
	var b strings.Builder
	at := back
	for _, sp := range spans {
		if sp.end <= back || sp.start >= cut {
			continue
		}
		if sp.start > at {
			b.WriteString(text[at:sp.start])
		}
		b.WriteString(markOpen + sp.name + markClose)
		at = sp.end
	}
	b.WriteString(text[at:cut])
	st.told, st.held = text[max(0, cut-streamBack):cut], text[cut:]
	out, _ := visible.Text(st.s.links(strings.ToValidUTF8(b.String(), "\uFFFD")))
	return out
}

// settled is how much of s are lines whose meaning does not hang on the next.
func settled(s string) int {
	n := strings.LastIndexAny(s, "\n\r") + 1
	if begin := strings.LastIndex(s[:n], "-----BEGIN"); begin >= 0 && !strings.Contains(s[begin:n], "-----END") {
		n = begin
	}
	for n > 0 {
		line := strings.TrimRight(s[:n], " \t\r\n")
		if line == "" || !strings.ContainsRune(openers, rune(line[len(line)-1])) {
			break
		}
		n = strings.LastIndexAny(line, "\n\r") + 1
	}
	return n
}

// unfinished moves a cut to where a stored secret of several lines may begin.
func (w *work) unfinished(text string, cut int) int {
	for _, k := range w.stored {
		for n := min(len(k.Value)-1, cut); n > 0; n-- {
			if strings.HasSuffix(text[:cut], k.Value[:n]) {
				cut -= n
				break
			}
		}
	}
	return cut
}
