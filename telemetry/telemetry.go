// Package telemetry counts what the gateway does, for /metrics.
package telemetry

import (
	"fmt"
	"net/http"
	"slices"
	"sync"

	"sallyport.dev/sallyport"
)

// buckets of a call's duration, in seconds.
var buckets = [...]float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60}

// Calls counts ended calls. The zero value is ready; it is safe for concurrent
// use, and an http.Handler that writes the Prometheus text format.
type Calls struct {
	mu     sync.Mutex
	ended  map[outcome]uint64
	took   [len(buckets) + 1]uint64
	sum    float64
	masked uint64
}

// An outcome is how a call ended: where, and with which code. Neither comes
// from a caller, so their number is bounded.
type outcome struct {
	step sallyport.Step
	code sallyport.Code
}

// Ended counts one call.
func (c *Calls) Ended(r sallyport.Record) {
	o := outcome{sallyport.Respond, "ok"}
	switch {
	case r.Code != "":
		o.code = r.Code
		if n := len(r.Path); n > 1 {
			o.step = r.Path[n-2]
		}
	case r.IsError:
		o.code = "tool_error"
	}
	seconds := r.Duration.Seconds()
	bucket, _ := slices.BinarySearch(buckets[:], seconds)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = map[outcome]uint64{}
	}
	c.ended[o]++
	c.took[bucket]++
	c.sum += seconds
	if len(r.Findings) > 0 {
		c.masked++
	}
}

// ServeHTTP writes the counters.
func (c *Calls) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	fmt.Fprintln(w, "# HELP sallyport_calls_total Ended calls, by the step that ended them and the code.\n# TYPE sallyport_calls_total counter")
	keys := make([]outcome, 0, len(c.ended))
	for o := range c.ended {
		keys = append(keys, o)
	}
	slices.SortFunc(keys, func(a, b outcome) int {
		return slices.Compare([]string{string(a.step), string(a.code)}, []string{string(b.step), string(b.code)})
	})
	for _, o := range keys {
		fmt.Fprintf(w, "sallyport_calls_total{step=%q,code=%q} %d\n", o.step, o.code, c.ended[o])
	}
	fmt.Fprintln(w, "# HELP sallyport_call_seconds How long calls took.\n# TYPE sallyport_call_seconds histogram")
	var total uint64
	for i, n := range c.took {
		total += n
		if i < len(buckets) {
			fmt.Fprintf(w, "sallyport_call_seconds_bucket{le=\"%g\"} %d\n", buckets[i], total)
		}
	}
	fmt.Fprintf(w, "sallyport_call_seconds_bucket{le=\"+Inf\"} %d\nsallyport_call_seconds_sum %g\nsallyport_call_seconds_count %d\n", total, c.sum, total)
	fmt.Fprintf(w, "# HELP sallyport_cleaned_total Results in which something was masked, escaped, cut or flagged.\n# TYPE sallyport_cleaned_total counter\nsallyport_cleaned_total %d\n", c.masked)
}
