// Package line reads what a program writes, line by line, in bounded memory
// whatever it writes.
package line

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"sallyport.dev/sallyport/redact/visible"
)

// ErrEndless ends a stream that does not come to the end of its line.
var ErrEndless = errors.New("a line without end")

// endlessFactor times the limit is what is read of one line before the stream
// is given up.
const endlessFactor = 16

// A Reader reads lines of up to max bytes, whatever comes.
type Reader struct {
	r   *bufio.Reader
	max int
}

// NewReader returns a reader of lines of up to max bytes.
func NewReader(r io.Reader, max int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

// Next returns the next line without its end. A line beyond the limit is
// skipped; tooLarge is then set and id is that of the request which its message
// answers, if it answers one. What follows the last newline is not a line.
func (l *Reader) Next() (line []byte, id json.RawMessage, tooLarge bool, err error) {
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > l.max+1 {
			id, err = l.skip(line, part, err)
			return nil, id, true, err
		}
		line = append(line, part...)
		if err == nil {
			return line[:len(line)-1], nil, false, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, nil, false, err
		}
	}
}

// skip reads on to the end of the line and keeps nothing of it but the id.
func (l *Reader) skip(line, part []byte, err error) (json.RawMessage, error) {
	var s idScanner
	s.feed(line)
	total := len(line)
	for {
		s.feed(part)
		if total += len(part); total > endlessFactor*l.max {
			return s.answers(), ErrEndless
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return s.answers(), err
		}
		part, err = l.r.ReadSlice('\n')
	}
}

// idScanner finds the value of the outermost member "id" in JSON that passes by.
type idScanner struct {
	depth    int
	inString bool
	escaped  bool
	value    bool // behind a colon at depth 1
	asks     bool // it has a method: the id is of a request, and nobody's whom it could answer
	text     []byte
	key      string
	id       json.RawMessage
}

const maxIDText = 64

// answers is the id of the request that the message answers, if it does.
func (s *idScanner) answers() json.RawMessage {
	if s.asks {
		return nil
	}
	return s.id
}

func (s *idScanner) feed(b []byte) {
	for _, c := range b {
		if s.inString {
			s.inside(c)
			continue
		}
		switch c {
		case '"':
			s.inString = true
			s.note(c)
		case '{', '[':
			s.depth++
		case '}', ']':
			if s.depth == 1 {
				s.close()
			}
			s.depth--
		case ':':
			if s.depth == 1 {
				s.key, s.value, s.text = string(s.text), true, nil
				s.asks = s.asks || s.key == `"method"`
			}
		case ',':
			if s.depth == 1 {
				s.close()
			}
		case ' ', '\t', '\r', '\n':
		default:
			s.note(c)
		}
	}
}

func (s *idScanner) inside(c byte) {
	s.note(c)
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.inString = false
	}
}

func (s *idScanner) note(c byte) {
	if s.depth == 1 && len(s.text) < maxIDText {
		s.text = append(s.text, c)
	}
}

// close ends a member.
func (s *idScanner) close() {
	if s.value && s.key == `"id"` && len(s.text) < maxIDText {
		s.id = json.RawMessage(s.text)
	}
	s.value, s.key, s.text = false, "", nil
}

// A Ring keeps the last lines that a server wrote to its standard error, made
// harmless for a terminal.
type Ring struct {
	lines []string
	at    int
}

const (
	ringLines = 200
	ringWidth = 500 // characters of one line
)

// Add takes one line in.
func (r *Ring) Add(line string) {
	line = Printable(line, ringWidth)
	if len(r.lines) < ringLines {
		r.lines = append(r.lines, line)
		return
	}
	r.lines[r.at] = line
	r.at = (r.at + 1) % ringLines
}

// Tail returns the last n lines, oldest first.
func (r *Ring) Tail(n int) []string {
	all := append(append([]string(nil), r.lines[r.at:]...), r.lines[:r.at]...)
	return all[max(0, len(all)-n):]
}

// Printable is s on one line of at most width characters, with what would not
// show as itself made visible.
func Printable(s string, width int) string {
	n := 0
	for i := range s {
		if n++; n > width {
			s = s[:i] + "…"
			break
		}
	}
	return strings.ReplaceAll(visible.String(s), "\n", " ")
}
