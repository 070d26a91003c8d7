package isolate

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// written feeds a tap and returns what the outlet kept.
func written(t testing.TB, max int64, parts ...string) *outlet {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	tap := newTap(r)
	o := &outlet{word: "word", end: "end", max: max, exit: -1, over: make(chan struct{})}
	tap.serve(o)
	for _, p := range parts {
		if _, err := io.WriteString(w, p); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	<-tap.dry
	return o
}

func TestMarks(t *testing.T) {
	for name, c := range map[string]struct {
		in        string
		out, errs string
		exit      int
	}{
		"text":            {"early\n\x1eword 1\na\nb\n\x1eword 2\nc\n", "a\nb\n", "c\n", -1},
		"quoted":          {"\x1eword 1\"a\\n\\u00e9\\ud83d\\\"\\\\ü\"\n\x1eword 2\"\"\n", "a\né\ufffd\"\\ü", "", -1},
		"quoted, no end":  {"\x1eword 1\"abc", "abc", "", -1},
		"exit":            {"\x1eword x3\n\x1eword x4\n", "", "", 4},
		"no exit":         {"\x1eword x999\n\x1eword xx\n\x1eword x-1\n", "", "", -1},
		"another's":       {"\x1eother 1\"a\"\n\x1eother x1\nb\n", "", "", -1},
		"a mark's like":   {"\x1eword 1\n\x1eother 1 x\n\x1e\n\x1eword\n", "\x1eother 1 x\n\x1e\n\x1eword\n", "", -1},
		"no mark yet":     {"\x1ewo", "", "", -1},
		"a long word":     {"\x1eword 1\n\x1e" + strings.Repeat("w", 100) + "\n", "\x1e" + strings.Repeat("w", 100) + "\n", "", -1},
		"after the end":   {"\x1eword 1\na\n\x1eend \nlate\n\x1eword 1\nlate\n", "a\n", "", -1},
		"a long line":     {"\x1eword 1\n" + strings.Repeat("x", 1<<17) + "\n", strings.Repeat("x", 1<<17) + "\n", "", -1},
		"a long text":     {"\x1eword 1\"" + strings.Repeat("x\\n", 1<<16) + "\"\n", strings.Repeat("x\n", 1<<16), "", -1},
		"a long exit":     {"\x1eword x1" + strings.Repeat(" ", 1<<17) + "\n\x1eword 1\na\n", "a\n", "", -1},
		"an unknown sign": {"\x1eword ?\n\x1eword 1\na\n", "a\n", "", -1},
	} {
		o := written(t, 1<<20, c.in)
		if string(o.kept[0]) != c.out || string(o.kept[1]) != c.errs || o.exit != c.exit || o.truncated {
			t.Errorf("%s: %.200q, %q, exit %d", name, o.kept[0], o.kept[1], o.exit)
		}
	}
	if o := written(t, 3, "\x1eword 1\nabc\n\x1eword 2\"de\"\n"); string(o.kept[0]) != "abc" || string(o.kept[1]) != "de" || !o.truncated {
		t.Errorf("beyond its bound: %q", o.kept)
	}
}

// What is no text costs nothing, however long: a program that knows its word can write it.
func TestTO57_EndlessMarks(t *testing.T) {
	part := strings.Repeat("7", 1<<20)
	for _, head := range []string{"\x1eword x", "\x1eend ", "\x1eword ?", "\x1e"} {
		parts := append([]string{head}, slices.Repeat([]string{part}, 64)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o := written(t, 1<<10, append(parts, "\n\x1eword 1\non\n")...)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 || head != "\x1eend " && string(o.kept[0]) != "on\n" {
			t.Errorf("after %q: %d MiB, %q", head, n>>20, o.kept[0])
		}
	}
}

// Whatever a program prints, as text or exactly, comes out as it was, and nothing
// that is not of the call.
func FuzzMarks(f *testing.F) {
	f.Add("a", "b\n", "\x1eword 1\n")
	f.Add("\x00\xff", "", "\x1eend \n")
	f.Fuzz(func(t *testing.T, exact, text, stray string) {
		quoted, err := json.Marshal(exact)
		if err != nil {
			t.Fatal(err)
		}
		valid := strings.ToValidUTF8(exact, "\ufffd")
		if err := json.Unmarshal(quoted, &valid); err != nil {
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, "\x1e", "")
		o := written(t, 1<<20, "\x1eword 1"+string(quoted)+"\n\x1eword 2\n"+text+"\n\x1eend \n"+stray)
		if string(o.kept[0]) != valid || string(o.kept[1]) != text+"\n" {
			t.Errorf("%q became %q, %q became %q", exact, o.kept[0], text, o.kept[1])
		}
		if !bytes.Contains([]byte(stray), []byte{mark}) {
			o = written(t, 1<<20, stray)
			if len(o.kept[0])+len(o.kept[1]) != 0 {
				t.Errorf("%q is kept of what nobody owns", o.kept)
			}
		}
	})
}
