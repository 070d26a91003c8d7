package frame

import (
	"fmt"
	"strings"
	"testing"
)

func TestReader(t *testing.T) {
	const one, two = `{"n":1,"tool":"a__b","args":{"x":"é"}}`, `{"n":2,"tool":"c","args":[1]}`
	for size := 1; size < len(one)+len(two)+3; size++ {
		var r Reader
		var got []Call
		for b := []byte(one + "\n" + two + "\n"); len(b) > 0; {
			n := min(size, len(b))
			calls, err := r.Read(b[:n])
			if err != nil {
				t.Fatal(err)
			}
			got, b = append(got, calls...), b[n:]
		}
		if fmt.Sprint(got) != fmt.Sprint([]Call{{1, "a__b", []byte(`{"x":"é"}`)}, {2, "c", []byte(`[1]`)}}) {
			t.Fatalf("in pieces of %d: %v", size, got)
		}
	}
}

func TestRefused(t *testing.T) {
	many := &strings.Builder{}
	for n := range MaxCalls + 1 {
		fmt.Fprintf(many, `{"n":%d,"tool":"t"}`+"\n", n+1)
	}
	for name, c := range map[string]struct {
		in    string
		calls int
	}{
		"no JSON":        {"hello\n", 0},
		"not UTF-8":      {`{"n":1,"tool":"` + "\xff" + `"}` + "\n", 0},
		"no number":      {`{"tool":"t"}` + "\n", 0},
		"no tool":        {`{"n":1}` + "\n", 0},
		"zero":           {`{"n":0,"tool":"t"}` + "\n", 0},
		"a fraction":     {`{"n":1.5,"tool":"t"}` + "\n", 0},
		"huge number":    {`{"n":1e99,"tool":"t"}` + "\n", 0},
		"skipped":        {`{"n":2,"tool":"t"}` + "\n", 0},
		"used again":     {`{"n":1,"tool":"t"}` + "\n" + `{"n":1,"tool":"t"}` + "\n", 1},
		"more follows":   {`{"n":1,"tool":"t"} x` + "\n", 0},
		"an empty line":  {"\n", 0},
		"too long":       {strings.Repeat(" ", MaxBytes+1), 0},
		"long and whole": {`{"n":1,"tool":"t","args":"` + strings.Repeat("x", MaxBytes) + `"}` + "\n", 0},
		"too many":       {many.String(), MaxCalls},
	} {
		var r Reader
		calls, err := r.Read([]byte(c.in))
		if err == nil || len(calls) != c.calls {
			t.Errorf("%s: %d calls, %v", name, len(calls), err)
		}
		if calls, again := r.Read([]byte(`{"n":1,"tool":"t"}` + "\n")); len(calls) > 0 || again != err {
			t.Errorf("%s: goes on after an error: %v, %v", name, calls, again)
		}
	}
}

// Whatever comes, calls are numbered from 1 without a gap, each is bounded, and
// how it is cut makes no difference.
func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"n":1,"tool":"a__b","args":{}}`+"\n"+`{"n":2,"tool":"a__b"}`+"\n"), 3)
	f.Add([]byte("{\"n\":1,\"tool\":\"\\ud800\"}\n\n\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		var whole, cut Reader
		all, err := whole.Read(in)
		for i, c := range all {
			if c.N != i+1 || len(c.Args) > MaxBytes || len(all) > MaxCalls {
				t.Fatalf("call %d: %+v", i, c)
			}
		}
		size = max(1, size%64)
		n := 0
		var cutErr error
		for b := in; len(b) > 0 && cutErr == nil; {
			var calls []Call
			k := min(size, len(b))
			calls, cutErr = cut.Read(b[:k])
			n, b = n+len(calls), b[k:]
		}
		if n != len(all) || (err == nil) != (cutErr == nil) {
			t.Fatalf("%d calls, %v; in pieces of %d: %d, %v", len(all), err, size, n, cutErr)
		}
	})
}
