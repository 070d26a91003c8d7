package telemetry_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/telemetry"
)

func TestServers(t *testing.T) {
	var b strings.Builder
	telemetry.WriteServers(&b, []telemetry.Server{
		{Name: "a", Ready: true, Circuit: "closed"},
		{Name: "b", Ready: true, Circuit: "open", Opened: 3, Restarts: 2},
		{Name: "c", Silent: true},
	})
	for _, want := range []string{
		"# TYPE sallyport_server_ready gauge", `sallyport_server_ready{server="a"} 1`, `sallyport_server_ready{server="b"} 0`, `sallyport_server_ready{server="c"} 0`,
		`sallyport_server_silent{server="a"} 0`, `sallyport_server_silent{server="c"} 1`,
		`sallyport_server_circuit_open{server="a"} 0`, `sallyport_server_circuit_open{server="b"} 1`,
		"# TYPE sallyport_server_circuit_opened_total counter", `sallyport_server_circuit_opened_total{server="b"} 3`, `sallyport_server_restarts_total{server="b"} 2`,
	} {
		if !strings.Contains(b.String(), want+"\n") {
			t.Errorf("missing %s in\n%s", want, &b)
		}
	}
}
