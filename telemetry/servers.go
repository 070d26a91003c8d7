package telemetry

import (
	"fmt"
	"io"
)

// A Server is how one server behind the gateway does. Its name is the operator's,
// so the number of names is bounded.
type Server struct {
	Name     string
	Ready    bool
	Silent   bool   // it has not told its tools yet
	Circuit  string // closed, open or half_open
	Opened   uint64
	Restarts int
}

// WriteServers writes how servers do in the Prometheus text format.
func WriteServers(w io.Writer, all []Server) {
	number := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	for _, m := range []struct {
		name, kind, help string
		value            func(Server) any
	}{
		{"ready", "gauge", "Whether a server takes calls.", func(s Server) any { return number(s.Ready && s.Circuit != "open") }},
		{"silent", "gauge", "Whether a server has yet to tell its tools.", func(s Server) any { return number(s.Silent) }},
		{"circuit_open", "gauge", "Whether calls of a server are refused because several in a row failed.", func(s Server) any { return number(s.Circuit == "open" || s.Circuit == "half_open") }},
		{"circuit_opened_total", "counter", "How often that began.", func(s Server) any { return s.Opened }},
		{"restarts_total", "counter", "How often a server was started or connected to again.", func(s Server) any { return s.Restarts }},
	} {
		fmt.Fprintf(w, "# HELP sallyport_server_%s %s\n# TYPE sallyport_server_%[1]s %[3]s\n", m.name, m.help, m.kind)
		for _, s := range all {
			fmt.Fprintf(w, "sallyport_server_%s{server=%q} %v\n", m.name, s.Name, m.value(s))
		}
	}
}
