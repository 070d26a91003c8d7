package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/config"
)

// unbuilt refuses the settings that the configuration knows but this program
// does not follow yet: an operator must never believe in one that does nothing.
func unbuilt(c *config.Config) error {
	type setting struct {
		name string
		set  bool
		hint string
	}
	all := []setting{
		{"data", c.Data != "", "use --data or $SALLYPORT_DATA"},
		{"secrets.keys", c.Secrets.Keys != "", "keys are in the data folder"},
		{"sandbox.host", c.Sandbox.Host != "" && !filepath.IsAbs(c.Sandbox.Host), "name the unix socket of a sandbox host on this machine"},
		{"telemetry.endpoint", c.Telemetry.Endpoint != "", "there are counts at /metrics and a log on standard error, no traces"},
		{"telemetry.sample", c.Telemetry.Sample != 1, "no call is traced"},
	}
	var names, hints []string
	for _, s := range all {
		if s.set {
			names, hints = append(names, s.name), append(hints, s.name+": "+s.hint)
		}
	}
	if names == nil {
		return nil
	}
	return &sallyport.Error{
		Code:    sallyport.Invalid,
		Message: fmt.Sprintf("%s: %s is not built in yet, and nothing is done by halves", c.File, strings.Join(names, ", ")),
		Hint:    "take it out; " + strings.Join(hints, "; "),
	}
}
