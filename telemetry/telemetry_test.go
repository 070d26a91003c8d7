package telemetry_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/telemetry"
)

func TestCalls(t *testing.T) {
	var c telemetry.Calls
	c.Ended(sallyport.Record{Path: sallyport.Steps, Duration: 3 * time.Millisecond})
	c.Ended(sallyport.Record{Path: sallyport.Steps, Duration: 5 * time.Millisecond, Findings: []string{"masked"}})
	c.Ended(sallyport.Record{Path: sallyport.Steps, IsError: true, Duration: 2 * time.Minute})
	c.Ended(sallyport.Record{Path: []sallyport.Step{sallyport.Receive, sallyport.Authorize, sallyport.Respond}, Code: sallyport.Denied})
	w := httptest.NewRecorder()
	c.ServeHTTP(w, nil)
	for _, want := range []string{
		`sallyport_calls_total{step="respond",code="ok"} 2`,
		`sallyport_calls_total{step="respond",code="tool_error"} 1`,
		`sallyport_calls_total{step="authorize",code="denied"} 1`,
		`sallyport_call_seconds_bucket{le="0.001"} 1`,
		`sallyport_call_seconds_bucket{le="0.005"} 3`,
		`sallyport_call_seconds_bucket{le="60"} 3`,
		`sallyport_call_seconds_bucket{le="+Inf"} 4`,
		`sallyport_call_seconds_count 4`,
		`sallyport_cleaned_total 1`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("missing %s in\n%s", want, w.Body)
		}
	}
}
