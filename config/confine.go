package config

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// confinement checks what a server in a sandbox may use, and that no other has
// any of it: nobody must believe in a bound that binds nothing.
func (d *decoder) confinement(key string, s *Server, dir string) {
	place := func(k string) string { return join(key, k) }
	given := func(k string, ok bool, want string) {
		if _, set := d.places[place(k)]; set {
			d.within(place(k), ok, want)
		}
	}
	given("calls", s.Calls >= 1 && s.Calls <= 4096, "between 1 and 4096")
	given("queue", s.Queue >= 1 && s.Queue <= 65536, "between 1 and 65536")
	given("wait", s.Wait >= time.Millisecond && s.Wait <= time.Hour, "between 1ms and 1h")
	d.within(place("idle"), s.Idle == 0 || s.Idle >= time.Second && s.Idle <= 30*24*time.Hour, "0s, or between 1s and 720h")
	if s.Processes != "" {
		d.oneOf(place("processes"), s.Processes, ProcessesOne, ProcessesEach)
	}
	if s.Command != "" && s.Isolation != IsolationGVisor {
		for _, k := range []string{"egress", "secrets", "roots", "limits"} {
			if p, set := d.places[place(k)]; set {
				d.fail(p, "set isolation: gvisor, or remove it: such a server reaches and sees what its user may", "%s binds nothing with isolation %s", place(k), s.Isolation)
			}
		}
		return
	}
	d.each(place("egress"), s.Egress, d.destination)
	for i := range s.Roots {
		d.root(place("roots")+"["+strconv.Itoa(i)+"]", &s.Roots[i], dir)
	}
	for i, v := range s.Secrets {
		d.serverSecret(place("secrets")+"["+strconv.Itoa(i)+"]", v, s.Egress)
	}
	l := s.Limits
	given("limits.memory", l.Memory >= 32*MiB, "at least 32MiB")
	given("limits.processes", l.Processes >= 1 && l.Processes <= 4096, "between 1 and 4096")
	given("limits.disk", l.Disk >= MiB, "at least 1MiB")
	given("limits.cpus", l.CPUs >= 0.01 && l.CPUs <= 1024, "between 0.01 and 1024")
	given("limits.state", l.State >= 64*KiB, "at least 64KiB")
}

func (d *decoder) root(key string, r *Root, dir string) {
	if r.Path == "" {
		d.fail(d.places[key], "write - path: /FOLDER", "%s names no folder", key)
		return
	}
	if dir == "" && !filepath.IsAbs(r.Path) {
		d.fail(d.places[join(key, "path")], "write an absolute path", "%s: %q is relative to nothing", key, r.Path)
		return
	}
	d.path(join(key, "path"), &r.Path, dir)
	r.Path = filepath.Clean(r.Path)
	if r.Path == "/" || slices.Contains(strings.Split(r.Path, "/"), "..") {
		d.fail(d.places[join(key, "path")], "name the folder that the server needs", "%s: %q is not shown to a server", key, r.Path)
	}
}

func (d *decoder) serverSecret(key string, v ServerSecret, egress []string) {
	switch {
	case v.Name == "" || v.Header == "" || v.Host == "":
		d.fail(d.places[key], "write {name: NAME, header: Authorization, prefix: \"Bearer \", host: api.example.com:443}; a secret in the environment is ${secret:NAME} in env",
			"%s needs name, header and host", key)
	case !slices.Contains(egress, v.Host):
		d.fail(d.places[key], "add it to egress", "%s: the server may not reach %q", key, v.Host)
	default:
		d.name(join(key, "header"), "header", v.Header, headerName, "use letters, digits and hyphens")
		d.references(key, "${secret:"+v.Name+"}")
	}
}
