package line_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"sallyport.dev/sallyport/backend/upstream/line"
)

const limit = 100_000

func TestFO22_Reader(t *testing.T) {
	long := func(n int, end string) string {
		head := `{"id_":1,"x":{"id":2,"y":"\",\"id\":3"},"result":"`
		return head + strings.Repeat("a", n-len(head)-len(end)) + end
	}
	for _, tt := range []struct {
		name, line string
		tooLarge   bool
		id         string
	}{
		{"short", `{"id":1}`, false, ""},
		{"empty", ``, false, ""},
		{"at the limit", long(limit, `","id":7}`), false, ""},
		{"one more, id last", long(limit+1, `","id":7}`), true, "7"},
		{"id first", `{"id":"seven",` + long(2*limit, `"}`)[1:], true, `"seven"`},
		{"id in the middle", long(2*limit, `"},"id": 8 ,"z":[1,{"id":9}]}`)[:2*limit], true, ""},
		{"escaped quote before it", long(2*limit, `\\","id":7}`), true, "7"},
		{"a very long id", long(2*limit, `","id":"`+strings.Repeat("9", 100)+`"}`), true, ""},
		{"no JSON", strings.Repeat("x", 3*limit), true, ""},
	} {
		for _, read := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.HalfReader} {
			r := line.NewReader(read(strings.NewReader(tt.line+"\nnext\ncut")), limit)
			text, id, tooLarge, err := r.Next()
			if err != nil || tooLarge != tt.tooLarge || !tooLarge && string(text) != tt.line || string(id) != tt.id {
				t.Errorf("%s: %d bytes, id %q, too large %t, %v", tt.name, len(text), id, tooLarge, err)
			}
			if text, _, _, err := r.Next(); string(text) != "next" || err != nil {
				t.Errorf("%s: then %q, %v", tt.name, text, err)
			}
			if _, _, _, err := r.Next(); err != io.EOF {
				t.Errorf("%s: half a line gives %v", tt.name, err)
			}
		}
	}
}

type endless struct{ n int }

func (e *endless) Read(b []byte) (int, error) {
	e.n += len(b)
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func TestFO22_Endless(t *testing.T) {
	var e endless
	_, _, tooLarge, err := line.NewReader(&e, limit).Next()
	if !tooLarge || !errors.Is(err, line.ErrEndless) {
		t.Errorf("too large %t, %v", tooLarge, err)
	}
	if e.n > 20*limit {
		t.Errorf("%d bytes were read of a line without end", e.n)
	}
}

// A request of the server that is too large has an id of its own, which may be that of a
// call: it answers none.
func TestFO22_WhoseIDItIs(t *testing.T) {
	long := strings.Repeat("x", 3*limit)
	for in, want := range map[string]string{
		`{"id":7,"result":{"a":"` + long + `"}}`:                              "7",
		`{"id":7,"method":"roots/list","params":{"a":"` + long + `"}}`:        "",
		`{"params":{"a":"` + long + `","id":8},"id":7,"method":"roots/list"}`: "",
		`{"result":{"method":"` + long + `","id":8},"id":7}`:                  "7",
	} {
		_, id, tooLarge, err := line.NewReader(strings.NewReader(in+"\n"), limit).Next()
		if !tooLarge || err != nil || string(id) != want {
			t.Errorf("%.30s: id %q, too large %t, %v", in, id, tooLarge, err)
		}
	}
}

func TestRing(t *testing.T) {
	var r line.Ring
	for i := range 450 {
		r.Add(fmt.Sprint(i))
	}
	if got := r.Tail(3); strings.Join(got, " ") != "447 448 449" {
		t.Errorf("Tail = %v", got)
	}
	if got := r.Tail(1000); len(got) != 200 || got[0] != "250" {
		t.Errorf("Tail = %d lines from %s", len(got), got[0])
	}
}

func TestTO05_Printable(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 汉":        "plain é 汉",
		"a\x1b[2Jb\x07\rc": "a␛[2Jb␇␍c",
		"two\nlines":       "two lines",
		"bad \xff":         `bad \x{ff}`,
		"a\u202eb":         `a\u{202e}b`,
		"123456789012345":  "123456789012…",
	} {
		if got := line.Printable(in, 12); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("{\"id\":1,\"a\":\"xxxxxxxxxxxxxxxxxxxxxxxxxx\"}\nb\n"), 8)
	f.Fuzz(func(t *testing.T, data []byte, max int) {
		if max < 1 || max > 1000 {
			return
		}
		r := line.NewReader(strings.NewReader(string(data)), max)
		want := strings.Split(string(data), "\n")
		for i := 0; ; i++ {
			text, _, tooLarge, err := r.Next()
			if err != nil {
				if tooLarge && errors.Is(err, line.ErrEndless) || err == io.EOF && i >= len(want)-1 {
					return
				}
				t.Fatalf("line %d: %v", i, err)
			}
			if tooLarge != (len(want[i]) > max) || !tooLarge && string(text) != want[i] {
				t.Fatalf("line %d: %q, too large %t; want %q of at most %d", i, text, tooLarge, want[i], max)
			}
		}
	})
}
