package gcra_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"sallyport.dev/sallyport/limit/gcra"
)

var start = time.Unix(1_700_000_000, 0)

func TestNext(t *testing.T) {
	r := gcra.PerSecond(10, 3)
	steps := []struct {
		at   time.Duration
		n    int
		ok   bool
		wait time.Duration
	}{
		{0, 1, true, 0}, {0, 1, true, 0}, {0, 1, true, 0},
		{0, 1, false, 100 * time.Millisecond},
		{50 * time.Millisecond, 1, false, 50 * time.Millisecond},
		{100 * time.Millisecond, 1, true, 0},
		{100 * time.Millisecond, 1, false, 100 * time.Millisecond},
		{time.Second, 4, false, 100 * time.Millisecond}, // more than the burst, ever
		{time.Second, 3, true, 0},
		{time.Second, 0, true, 0},
		{time.Second, math.MaxInt, false, 300 * time.Millisecond},
		{time.Hour, 3, true, 0},
		{0, 1, false, time.Hour + 100*time.Millisecond}, // a clock that went back gives nothing away
	}
	var tat int64
	for i, s := range steps {
		next, wait, ok := r.Next(tat, start.Add(s.at).UnixNano(), s.n)
		if ok != s.ok || wait != s.wait {
			t.Errorf("step %d: ok %v, wait %v; want %v, %v", i, ok, wait, s.ok, s.wait)
		}
		if !ok && next != tat {
			t.Errorf("step %d: a refused event was counted", i)
		}
		tat = next
	}
}

func TestNoLimit(t *testing.T) {
	for _, n := range []float64{0, -1} {
		if _, _, ok := gcra.PerSecond(n, 1).Next(0, 0, 1<<40); !ok {
			t.Errorf("rate %v limits", n)
		}
	}
}

// Over a long time, what passes is the burst plus the rate, exactly.
func TestExact(t *testing.T) {
	r, tat, passed := gcra.PerSecond(100, 20), int64(0), 0
	for at := time.Duration(0); at < 10*time.Second; at += time.Millisecond {
		next, _, ok := r.Next(tat, start.Add(at).UnixNano(), 1)
		if tat = next; ok {
			passed++
		}
	}
	if want := 20 + 999; passed != want {
		t.Errorf("passed %d, want %d", passed, want)
	}
}

func TestTableIsBounded(t *testing.T) {
	tab := gcra.NewTable(gcra.Rate{Every: time.Minute, Burst: 2}, 1600)
	for i := range 50_000 {
		tab.Add(fmt.Sprint("flood", i), start)
	}
	if n := tab.Len(); n > 1600 {
		t.Errorf("%d keys remembered, want at most 1600", n)
	}
	tab.Add("me", start.Add(time.Hour))
	tab.Add("me", start.Add(time.Hour))
	if tab.Add("me", start.Add(time.Hour)) {
		t.Error("third event in a burst of two passed")
	}
	if w := tab.Wait("me", start.Add(time.Hour)); w != time.Minute {
		t.Errorf("wait %v, want 1m", w)
	}
	if w := tab.Wait("other", start); w != 0 {
		t.Errorf("an unknown key waits %v", w)
	}
}
