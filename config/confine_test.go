package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/config"
)

func TestServerInASandbox(t *testing.T) {
	c, err := config.Parse("/etc/sallyport/sallyport.yaml", []byte(`
servers:
  files:
    command: npx
    args: [-y, x@1]
    egress: ["api.example:443"]
    secrets: [{name: api, header: Authorization, prefix: "Bearer ", host: "api.example:443"}]
    roots: [{path: /srv/files}, {path: work, read_only: false}]
    limits: {memory: 1GiB, processes: 8, disk: 2MiB, cpus: 0.5, state: 1MiB}
    calls: 2
    queue: 3
    idle: 5m
    processes: each
`))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Servers["files"]
	if s.Isolation != config.IsolationGVisor || s.Calls != 2 || s.Queue != 3 || s.Idle != 5*time.Minute || s.Processes != config.ProcessesEach {
		t.Errorf("%+v", s)
	}
	want := sallyport.Confinement{
		Limits: sallyport.Limits{Memory: 1 << 30, Processes: 8, Disk: 2 << 20, CPUs: 0.5}, State: 1 << 20, Egress: []string{"api.example:443"},
		Inject: []sallyport.Injected{{SecretGrant: sallyport.SecretGrant{Name: "api", Header: "Authorization", Prefix: "Bearer ", Host: "api.example:443"}}},
		Roots:  []sallyport.Root{{Path: "/srv/files"}, {Path: "/etc/sallyport/work", Writable: true}},
	}
	if got := s.Confinement(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// What would bind nothing, or names nothing, is refused with its place.
func TestServerInASandboxRefuses(t *testing.T) {
	for more, want := range map[string]string{
		"isolation: uid, egress: ['a.example:1']":              "egress binds nothing with isolation uid",
		"isolation: none, roots: [{path: /srv}]":               "roots binds nothing",
		"isolation: uid, limits: {memory: 1GiB}":               "limits binds nothing",
		"roots: [{}]":                                          "names no folder",
		"roots: [{path: /}]":                                   "is not shown to a server",
		"roots: [{path: /srv, readonly: true}]":                "unknown key",
		"secrets: [{name: a, header: X}]":                      "needs name, header and host",
		"secrets: [{name: a, header: X, host: 'a.example:1'}]": "may not reach",
		"limits: {memory: 1MiB}":                               "at least 32MiB",
		"limits: {processes: 0}":                               "between 1 and 4096",
		"limits: {timeout: 1s}":                                "unknown key",
		"calls: 0":                                             "between 1 and 4096",
		"queue: 0":                                             "between 1 and 65536",
		"processes: many":                                      "\"many\" is not known",
		"idle: 10ms":                                           "0s, or between",
	} {
		_, err := config.Parse("/etc/s.yaml", []byte("servers: {a: {command: x, "+more+"}}\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "/etc/s.yaml:1") {
			t.Errorf("%s: %v", more, err)
		}
	}
	if _, err := config.Parse("/etc/s.yaml", []byte("servers: {a: {url: 'http://h/', roots: [{path: /srv}]}}\n")); err == nil || !strings.Contains(err.Error(), "does not fit this kind of server") {
		t.Errorf("%v", err)
	}
}
