package pace_test

import (
	"math"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream/pace"
)

func TestSpan(t *testing.T) {
	for n, want := range map[int]time.Duration{
		-1: 100, 0: 100, 1: 100, 2: 200, 3: 400, 8: 12_800, 9: 20_000, 1000: 20_000, math.MaxInt: 20_000,
	} {
		if got := pace.Span(n, 100*time.Millisecond, 20*time.Second); got != want*time.Millisecond {
			t.Errorf("span of %d = %v, want %v", n, got, want*time.Millisecond)
		}
	}
	if got := pace.Span(3, time.Minute, time.Second); got != time.Second {
		t.Errorf("a base beyond the most: %v", got)
	}
	if got := pace.Span(200, math.MaxInt64/2, math.MaxInt64); got <= 0 {
		t.Errorf("it overflows: %v", got)
	}
}

// The pauses of many that fail together fill the whole span: no part of it is
// left out, and none of it is crowded.
func TestJitterIsFull(t *testing.T) {
	const n, parts = 20_000, 10
	var count [parts]int
	for range n {
		d := pace.Before(4, 100*time.Millisecond, time.Minute)
		if d < 0 || d > 800*time.Millisecond {
			t.Fatalf("%v is out of the span", d)
		}
		count[min(int(d*parts/(800*time.Millisecond)), parts-1)]++
	}
	for i, c := range count {
		if c < n/parts*8/10 || c > n/parts*12/10 {
			t.Errorf("part %d has %d of %d", i, c, n)
		}
	}
}
