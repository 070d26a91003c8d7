package trace_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/trace"
)

const (
	one = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	two = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// malformed are traceparents that begin a trace anew.
var malformed = []string{
	"", "00", one[:54], one + "0", " " + one, one + " ", strings.ToUpper(one), "01" + one[2:], "ff" + one[2:],
	strings.Replace(one, "-", "_", 1), strings.Replace(one, "4b", "4g", 1), one[:35] + "x" + one[36:], one[:52] + "+" + one[53:],
	"00-" + strings.Repeat("0", 32) + one[35:], one[:36] + strings.Repeat("0", 16) + one[52:],
	"00-" + strings.Repeat("0", 32) + "-" + strings.Repeat("0", 16) + "-00", one[:53] + "\x00" + "1", strings.Repeat("0", 55),
}

func TestFO44OneRule(t *testing.T) {
	for _, bad := range malformed {
		if trace.Valid(bad) {
			t.Errorf("%q is taken", bad)
		}
		if got := trace.Pick(bad, two); got != two {
			t.Errorf("%q, then a valid one: %s", bad, got)
		}
		if got := trace.Pick(bad); !trace.Valid(got) || len(bad) >= 35 && strings.Contains(got, bad[3:35]) {
			t.Errorf("%q begins no new trace: %s", bad, got)
		}
	}
	if got := trace.Pick(one, two); got != one {
		t.Errorf("the first counts: %s", got)
	}
	if a, b := trace.Pick(), trace.Pick(); a == b || !trace.Valid(a) || !trace.Valid(b) {
		t.Errorf("%s, %s", a, b)
	}
}

func TestContinue(t *testing.T) {
	a, b := trace.Continue(one), trace.Continue(one)
	for _, got := range []string{a, b} {
		if !trace.Valid(got) || got[:35] != one[:35] || got[36:52] == one[36:52] || got[52:] != one[52:] {
			t.Errorf("%s is not a new span of %s", got, one)
		}
	}
	if a == b {
		t.Error("two spans have one name")
	}
	if got := trace.Continue("x"); !trace.Valid(got) {
		t.Error(got)
	}
}

func FuzzValid(f *testing.F) {
	f.Add(one)
	for _, bad := range malformed {
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := trace.Continue(s)
		if !trace.Valid(got) || trace.Valid(s) && got[:35] != s[:35] {
			t.Errorf("%q becomes %q", s, got)
		}
	})
}

func TestChoose(t *testing.T) {
	good := trace.Context{Parent: one, State: "congo=t61rcWkgMzE, rojo@x=00f067aa0ba902b7,", Baggage: "userId=alice,serverNode=DF%2028;p=1;q , isProduction=false"}
	if got := trace.Choose(trace.Context{Parent: "x", State: "a=1"}, good); got != good {
		t.Errorf("%+v", got)
	}
	if got := trace.Choose(trace.Context{Parent: "x", State: "a=1", Baggage: "k=v"}); !trace.Valid(got.Parent) || got.State+got.Baggage != "" {
		t.Errorf("of a trace that is new: %+v", got)
	}
	for _, bad := range []string{"A=1", "=1", "a", "a=", "a=b=c", "a=\x00", "@a=1", "a=" + strings.Repeat("x", 257), strings.Repeat("a=1,", 32), "a=é", ","} {
		if got := trace.Choose(trace.Context{Parent: one, State: bad}); got.State != "" {
			t.Errorf("tracestate %q", bad)
		}
	}
	for _, bad := range []string{"k", "=v", "k y=v", "k=\"v\"", "k=v\r\nX: y", "k=é", strings.Repeat("k=v,", 64), "k=" + strings.Repeat("x", 8192), ","} {
		if got := trace.Choose(trace.Context{Parent: one, Baggage: bad}); got.Baggage != "" {
			t.Errorf("baggage %q", bad)
		}
	}
}

// What is chosen can stand in a header.
func FuzzChoose(f *testing.F) {
	f.Add(one, "a=1,b=2", "k=v;p=1")
	f.Fuzz(func(t *testing.T, parent, state, baggage string) {
		c := trace.Choose(trace.Context{Parent: parent, State: state, Baggage: baggage})
		for _, s := range []string{c.Parent, c.State, c.Baggage} {
			if strings.ContainsFunc(s, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }) {
				t.Errorf("%q", s)
			}
		}
		if !trace.Valid(c.Parent) || len(c.State) > 512 || len(c.Baggage) > 8192 {
			t.Errorf("%+v", c)
		}
	})
}
