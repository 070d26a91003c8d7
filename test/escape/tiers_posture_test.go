package escape_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/isolate"
	"sallyport.dev/sallyport/isolate/isolatetest"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/tiertest"
	"sallyport.dev/sallyport/wasm"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

// A posture is what the processes of a tier's sandboxes may hold on the host.
type posture struct {
	open func(t *testing.T) tier.Tier
	hang tier.Request
	name string         // of a process that belongs to a sandbox, wherever it is
	fds  *regexp.Regexp // what may be open: links of /proc/PID/fd
}

// memoryFD is what leads nowhere but to the other end.
const memoryFD = `/dev/null|/memfd:.*|anon_inode:.*|pipe:.*|socket:.*|/dev/zero`

var postures = map[string]posture{
	"microvm": {
		open: func(t *testing.T) tier.Tier { return microvmtest.Open(t, func(c *microvm.Config) { c.Warm = 1 }) },
		hang: tier.Request{Image: "default", Argv: []string{"sleep", "300"}},
		name: "qemu-system-x86",
		fds:  regexp.MustCompile(`^(` + memoryFD + `|/.*\.erofs|/dev/urandom)( \(deleted\))?$`),
	},
	"isolate": {
		open: func(t *testing.T) tier.Tier { return isolatetest.Open(t, func(c *isolate.Config) { c.Warm = 1 }) },
		hang: tier.Request{Argv: []string{"main.js"}, Module: &tier.Module{Language: "javascript", Code: []byte("console.log('up'); await new Promise((d) => setTimeout(d, 3e5))")}},
		name: "workerd",
		fds:  regexp.MustCompile(`^(` + memoryFD + `|/dev/urandom)( \(deleted\))?$`),
	},
	"wasm": {
		open: func(t *testing.T) tier.Tier {
			h, _ := wasmtest.Open(t, func(c *wasm.Config) { c.Warm = 1 })
			return h
		},
		hang: tier.Request{Argv: []string{"main.wasm", "hang", "up"}},
		name: "sallyport-wasm",
		fds:  regexp.MustCompile(`^(` + memoryFD + `|/.*/compiled/.*)( \(deleted\))?$`),
	},
}

// hostGroup is the control group of one sandbox.
var hostGroup = regexp.MustCompile(`/sallyport/[^/\s]+/[^/\s]+`)

// The living processes of sandboxes on the host, of tiers but gVisor: no uid of the
// host's, no capability nor a way to one, a filter of system calls, namespaces and a
// control group of their own, nothing of the host open. The control is this process.
func TestTO40_PostureOfTiers(t *testing.T) {
	alone(t)
	for name, p := range postures {
		if asked != "" && asked != name {
			continue
		}
		t.Run(name, func(t *testing.T) {
			h := p.open(t)
			r := p.hang
			r.Limits = sallyport.DefaultLimits()
			r.Limits.Timeout = 10 * time.Minute
			if name == "wasm" {
				r.Module = &tier.Module{Language: "wasm", Code: tiertest.Module(t)}
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { _, err := h.Run(ctx, r); ended <- err }()
			defer func() { cancel(); <-ended }()
			for deadline := time.Now().Add(4 * time.Minute); len(h.List()) == 0; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("none runs")
				}
			}
			p.sound(t)
		})
	}
	own := p0.wrong(t, os.Getpid())
	for _, want := range []string{"uid 0", "capabilities", "no_new_privs", "seccomp", "namespace net", "namespace mnt", "namespace pid", "control group"} {
		if !slices.ContainsFunc(own, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("control: this process has no weakness %q; it has %q", want, own)
		}
	}
}

var p0 = posture{fds: regexp.MustCompile(`^$`)}

// sound says that there are processes of a sandbox, and none stays weak. While one
// starts, its processes still give up what they have.
func (p posture) sound(t *testing.T) {
	t.Helper()
	for deadline, good := time.Now().Add(4*time.Minute), 0; good < 3; time.Sleep(200 * time.Millisecond) {
		n, found := p.look(t)
		if n > 0 && len(found) == 0 {
			good++
			continue
		}
		if good = 0; time.Now().After(deadline) { // one that starts is weak for a moment only
			t.Fatalf("%d processes: %q", n, found)
		}
	}
}

// steady is what is wrong with the processes of sandboxes that run, as it was seen
// three times in a row.
func (p posture) steady(t *testing.T) (found []string) {
	t.Helper()
	for deadline, same := time.Now().Add(4*time.Minute), 0; same < 3; time.Sleep(200 * time.Millisecond) {
		n, now := p.look(t)
		slices.Sort(now)
		if same++; n == 0 || !slices.Equal(now, found) {
			same = 0
		}
		if found = now; time.Now().After(deadline) {
			t.Fatalf("%d processes, which change: %q", n, found)
		}
	}
	return found
}

// look counts the processes of sandboxes of this test, and tells what is wrong with them.
func (p posture) look(t *testing.T) (n int, found []string) {
	t.Helper()
	for _, pid := range proc.Descendants(t, os.Getpid()) {
		group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		comm, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		name := strings.TrimSpace(string(comm))
		if err != nil || err2 != nil || !hostGroup.Match(group) && name != p.name {
			continue
		}
		n++
		for _, w := range p.wrong(t, pid) {
			found = append(found, fmt.Sprintf("%d %s: %s", pid, name, w))
		}
	}
	return n, found
}

// wrong is what a process holds that it must not.
func (p posture) wrong(t *testing.T, pid int) (found []string) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	b, err := os.ReadFile(proc + "status")
	if err != nil {
		return nil // it has ended
	}
	status := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		status[k] = strings.Join(strings.Fields(v), " ")
	}
	uid, _ := strconv.Atoi(strings.Fields(status["Uid"] + " 0")[0])
	for what, bad := range map[string]bool{
		"uid " + status["Uid"]: uid < 65000 || strings.Count(status["Uid"], strconv.Itoa(uid)) != 4 || strings.Count(status["Gid"], strings.Fields(status["Gid"])[0]) != 4 || strings.HasPrefix(status["Gid"], "0") || status["Groups"] != "",
		"capabilities":         strings.Trim(status["CapPrm"]+status["CapEff"]+status["CapInh"]+status["CapBnd"]+status["CapAmb"], "0") != "",
		"no_new_privs":         status["NoNewPrivs"] != "1",
		"seccomp":              status["Seccomp"] != "2",
	} {
		if bad {
			found = append(found, what)
		}
	}
	for _, ns := range []string{"ipc", "mnt", "net", "pid", "uts"} {
		mine, _ := os.Readlink("/proc/self/ns/" + ns)
		if theirs, err := os.Readlink(proc + "ns/" + ns); err == nil && theirs == mine {
			found = append(found, "namespace "+ns)
		}
	}
	if b, err := os.ReadFile(proc + "cgroup"); err == nil && !hostGroup.Match(b) {
		found = append(found, "control group")
	}
	fds, _ := os.ReadDir(proc + "fd")
	for _, fd := range fds {
		to, err := os.Readlink(proc + "fd/" + fd.Name())
		switch {
		case err != nil: // closed meanwhile
		case !p.fds.MatchString(to) && !ownRoot(proc, fd.Name()):
			found = append(found, "descriptor of "+to)
		case writable(proc, fd.Name(), to):
			found = append(found, "descriptor that can write "+to)
		}
	}
	if root, err := os.Stat(proc + "root/etc/shadow"); err == nil {
		found = append(found, "a root with "+root.Name())
	}
	return append(found, unlimited(proc)...)
}

// writable tells whether a file of the host, or memory that others get a copy of,
// could be changed by a descriptor.
func writable(proc, fd, to string) bool {
	if strings.HasPrefix(to, "/memfd:sallyport-") { // whoever opens it again may write, but for its seal
		f, err := os.Open(proc + "fd/" + fd)
		if err != nil {
			return false
		}
		defer f.Close()
		seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
		return err != nil || seals&unix.F_SEAL_WRITE == 0
	}
	if !filepath.IsAbs(to) || strings.HasPrefix(to, "/dev/") || strings.HasPrefix(to, "/memfd:") {
		return false
	}
	info, err := os.ReadFile(proc + "fdinfo/" + fd)
	return err == nil && !readOnly.Match(info)
}

var readOnly = regexp.MustCompile(`(?m)^flags:\s+\d*0$`)

// ownRoot tells whether a descriptor is of the process's root, which is not the
// host's.
func ownRoot(proc, fd string) bool {
	at, err := os.Stat(proc + "fd/" + fd)
	root, err2 := os.Stat(proc + "root")
	host, err3 := os.Stat("/")
	return err == nil && err2 == nil && err3 == nil && os.SameFile(at, root) && !os.SameFile(root, host)
}

// unlimited names the limits of a process that bound nothing.
func unlimited(proc string) (found []string) {
	b, _ := os.ReadFile(proc + "limits")
	for line := range strings.Lines(string(b)) {
		for _, name := range []string{"Max core file size", "Max open files"} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				if n, err := strconv.Atoi(strings.Fields(rest)[0]); err != nil || n > 4096 || strings.Contains(name, "core") && n > 0 {
					found = append(found, "limit "+strings.TrimSpace(line))
				}
			}
		}
	}
	return found
}
