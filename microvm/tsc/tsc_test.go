package tsc

import (
	"runtime"
	"testing"
	"time"
)

// Two measurements agree, and what a second one counts over another time is what the
// first one says.
func TestKHz(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("skipped: only amd64 has this counter")
	}
	khz, err := KHz()
	if err != nil {
		t.Fatal(err)
	}
	from, at := reading()
	time.Sleep(100 * time.Millisecond)
	to, end := reading()
	counted := float64(to-from) / float64(khz) / 1000
	if took := end.Sub(at).Seconds(); counted < took*0.995 || counted > took*1.005 {
		t.Errorf("%d kHz: %.6f s by the counter, %.6f s by the clock", khz, counted, took)
	}
}
