package isolate

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
)

// What a process writes to its standard output is text of the programs in its
// isolates, and marks: lines that begin with mark and a word that only the one
// call knows.
//
//	mark WORD SPACE 1|2 LINE     what follows, up to the next mark, is of stdout or stderr
//	mark WORD SPACE 1|2 "JSON"   this text is, exactly
//	mark WORD SPACE x N          the exit status so far
//	mark WORD SPACE              the call is over: the word of the host, not of the isolate
//	mark WORD SPACE HOST:PORT    is denied to the call: the word of the host as well
//
// A program that finds out its word can only lie about itself. What bears no
// known word is of a call that is over, and dropped.
const mark = '\x1e'

const (
	maxWord  = 64
	maxWords = 512 // that follow a mark and are no text; host.js says up to 260
)

// An outlet takes what one call prints.
type outlet struct {
	word string // of the isolate
	end  string // of the host
	max  int64  // bytes of each stream that are kept
	told func(stderr bool, b []byte)

	kept      [2][]byte
	printed   bool // by console
	truncated bool
	exit      int // -1 before the program said
	denied    []sallyport.Connection
	over      chan struct{}
}

// A tap reads what a process writes, to its end.
type tap struct {
	r *bufio.Reader

	mu  sync.Mutex
	out *outlet // of the call under way, nil if there is none
	to  int     // stream that text belongs to, -1 for none

	dry chan struct{} // closed at the end
}

func newTap(r io.ReadCloser) *tap {
	t := &tap{r: bufio.NewReaderSize(r, 64<<10), to: -1, dry: make(chan struct{})}
	go func() {
		defer close(t.dry)
		defer r.Close()
		for t.line() == nil {
		}
	}()
	return t
}

// serve has the outlet take what is printed from now on.
func (t *tap) serve(o *outlet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out, t.to = o, -1
}

// line takes one line, or a mark.
func (t *tap) line() error {
	b, err := t.r.Peek(1)
	if err != nil {
		return err
	}
	if b[0] == mark {
		return t.marked()
	}
	return t.rest()
}

// rest takes the rest of a line as text.
func (t *tap) rest() error {
	for {
		b, err := t.r.ReadSlice('\n')
		t.write(t.to, b)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// marked takes a line that begins with a mark.
func (t *tap) marked() error {
	head := make([]byte, 0, maxWord)
	for len(head) < maxWord {
		c, err := t.r.ReadByte()
		if err != nil {
			return err
		}
		if head = append(head, c); c == ' ' || c == '\n' {
			break
		}
	}
	t.mu.Lock()
	o := t.out
	t.mu.Unlock()
	switch word := string(head[1 : len(head)-1]); {
	case o != nil && word == o.word && head[len(head)-1] == ' ':
		return t.obey(o)
	case o != nil && word == o.end:
		return t.host(o)
	default:
		t.write(t.to, head) // text, if it is any call's
		if head[len(head)-1] == '\n' {
			return nil
		}
		return t.rest()
	}
}

// host takes what follows the word of the host.
func (t *tap) host(o *outlet) error {
	target, err := t.words()
	switch {
	case err != nil:
	case target == "":
		t.serve(nil)
		close(o.over)
	default:
		o.deny(target)
	}
	return err
}

// obey takes what follows the word of the call.
func (t *tap) obey(o *outlet) error {
	c, err := t.r.ReadByte()
	if err != nil {
		return err
	}
	switch c {
	case '1', '2':
		o.printed, t.to = true, int(c-'1')
		next, err := t.r.Peek(1)
		if err != nil {
			return err
		}
		if next[0] == '"' {
			if err := t.quoted(); err != nil {
				return err
			}
		}
	case 'x':
		n, err := t.words()
		if v, bad := strconv.ParseUint(n, 10, 8); err == nil && bad == nil {
			o.exit = int(v)
		}
		return err
	}
	_, err = t.words()
	return err
}

// words takes the rest of a line that is no text, whatever its length. What is longer
// than any that is meant is cut.
func (t *tap) words() (string, error) {
	var kept []byte
	for {
		b, err := t.r.ReadSlice('\n')
		kept = append(kept, b[:min(len(b), maxWords-len(kept))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return strings.TrimSuffix(string(kept), "\n"), err
		}
	}
}

// quoted takes a JSON string, whatever its length.
func (t *tap) quoted() error {
	b := make([]byte, 0, 4096)
	if _, err := t.r.ReadByte(); err != nil {
		return err
	}
	for {
		if len(b) > cap(b)-utf8.UTFMax {
			t.write(t.to, b)
			b = b[:0]
		}
		c, err := t.r.ReadByte()
		switch {
		case err != nil:
		case c == '\\':
			b, err = t.escape(b)
		case c == '"':
			t.write(t.to, b)
			return nil
		default:
			b = append(b, c)
		}
		if err != nil {
			t.write(t.to, b)
			return err
		}
	}
}

// escape takes what follows a backslash.
func (t *tap) escape(b []byte) ([]byte, error) {
	c, err := t.r.ReadByte()
	if err != nil {
		return b, err
	}
	switch c {
	case 'n':
		return append(b, '\n'), nil
	case 't':
		return append(b, '\t'), nil
	case 'r':
		return append(b, '\r'), nil
	case 'b':
		return append(b, '\b'), nil
	case 'f':
		return append(b, '\f'), nil
	case 'u':
		r, err := t.hex()
		if err == nil && utf16.IsSurrogate(r) {
			r = utf8.RuneError // JSON.stringify escapes only those that stand alone
		}
		return utf8.AppendRune(b, r), err
	default:
		return append(b, c), nil
	}
}

func (t *tap) hex() (rune, error) {
	var d [4]byte
	if _, err := io.ReadFull(t.r, d[:]); err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(d[:]), 16, 16)
	if err != nil {
		n = utf8.RuneError
	}
	return rune(n), nil
}

// write hands text to the call under way, if there is one.
func (t *tap) write(to int, b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out != nil && to >= 0 {
		t.out.write(to, b)
	}
}

// deny counts what was denied.
func (o *outlet) deny(target string) {
	at := slices.IndexFunc(o.denied, func(c sallyport.Connection) bool { return c.Target == target })
	switch {
	case at >= 0:
		o.denied[at].Count++
	case len(o.denied) < tier.MaxConnections:
		o.denied = append(o.denied, sallyport.Connection{Target: target, Reason: "not_listed", Count: 1})
	}
}

// write keeps text of a stream, within bounds. Nobody else writes meanwhile.
func (o *outlet) write(to int, b []byte) {
	if len(b) == 0 {
		return
	}
	room := min(o.max-int64(len(o.kept[to])), int64(len(b)))
	o.truncated = o.truncated || room < int64(len(b))
	o.kept[to] = append(o.kept[to], b[:room]...)
	if o.told != nil && room > 0 {
		o.told(to == 1, b[:room])
	}
}
