package escape_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/realtest"
)

// A weakness is a sandbox with one protection taken away, by means that no
// released program has: other words for the runtime, another bundle, or process
// 1 built from changed source. A probe must see it.
type weakness struct {
	name  string
	words string      // bash that changes ${args[@]} or the environment, before the runtime starts
	spec  [][2]string // in the bundle: text, and what it becomes
	init  [][2]string // in the source of process 1: regular expression, and what it becomes
	probe string      // bash; run inside
	sees  string      // regular expression of a line that only the weak sandbox prints
}

// replace changes a word of the runtime's command line.
func replace(from, to string) string {
	return fmt.Sprintf(`for i in "${!args[@]}"; do args[i]=${args[i]/#%s/%s}; done`, from, to)
}

func bindMount(dir string) [2]string {
	return [2]string{`"mounts":[`, fmt.Sprintf(`"mounts":[{"destination":"/srv","type":"bind","source":%q,"options":["bind","rw"]},`, dir)}
}

// weaknesses of which dir is a folder of the host with a file and a socket in
// it, and the canary a server of the host.
func planted(dir, secret string, c canaryListener) []weakness {
	host, _ := os.Hostname()
	return []weakness{
		{
			name: "the host's network", words: replace("--network=none", "--network=host"), spec: [][2]string{{`{"type":"network"},`, ""}},
			probe: "./probe dial tcp!127.0.0.1:" + c.port, sees: "^REACHED tcp",
		},
		{name: "a folder of the host", spec: [][2]string{bindMount(dir)}, probe: "./probe walk " + secret + " /srv", sees: "^HIT /srv/"},
		{name: "a mount that is not declared", spec: [][2]string{bindMount(dir)}, probe: "./probe mounts", sees: "^MOUNT /srv "},
		{
			name: "sockets of the host", words: replace("--host-uds=none", "--host-uds=all"), spec: [][2]string{bindMount(dir)},
			probe: "./probe dial unix!/srv/socket", sees: "^REACHED unix",
		},
		{
			name: "a root that can be written", words: replace("--overlay2=none", "--overlay2=root:memory"), spec: [][2]string{{`"readonly":true`, `"readonly":false`}},
			probe: "./probe mounts", sees: "^MOUNT / .* rw$",
		},
		{name: "the host's name", spec: [][2]string{{`"hostname":"sandbox"`, fmt.Sprintf(`"hostname":%q`, host+"-real")}}, probe: "./probe leaks", sees: "^VALUE uname-node " + host + "-real"},
		{name: "the host's memory in meminfo", words: "last=$((${#args[@]} - 1)); args[last]=${args[last]%-m*}", probe: "./probe leaks", sees: "^VALUE memory ([^1]|1[^3])"},
		{
			name: "no change of uid", init: [][2]string{{`Credential: +&syscall\.Credential\{[^}]*\}`, "Credential: nil"}},
			probe: "./probe identity", sees: "^IS uid 0 ",
		},
		{name: "privileges in the bounding set", init: [][2]string{{`must\(prctl\(prCapBsetDrop, c\).*`, "_ = c"}}, probe: "./probe identity", sees: " bounding [1-9]"},
		{name: "new privileges", init: [][2]string{{`must\(prctl\(prSetNoNewPrivs, 1\).*`, ""}}, probe: "./probe identity", sees: " no_new_privs 0 "},
		{name: "descriptors of process 1", init: [][2]string{{`syscall\.CloseOnExec\(fd\)`, "_ = fd"}}, probe: "./probe fds", sees: "^FD 4 "},
		{name: "devices of gVisor", init: [][2]string{{`"/dev/fuse", "/dev/net/tun"`, ""}}, probe: "./probe devices /tmp", sees: "^DEV fuse"},
		{name: "no bound on processes", init: [][2]string{{`must\(syscall\.Setrlimit\(rlimitNproc.*`, "_ = lim"}}, probe: fill("processes"), sees: "^GOT processes"},
		{name: "no bound on the disk", init: [][2]string{{`o\.disk *\+ *",mode=0755"`, `"mode=0755"`}}, probe: fill("disk"), sees: "^GOT disk"},
		{name: "no control group", words: "unset SALLYPORT_CGROUPS", probe: fill("memory"), sees: "^GOT memory"}, // last: it ends a sound sandbox
	}
}

// fill goes beyond a bound of smallLimits.
func fill(what string) string {
	return map[string]string{
		"processes": `python3 -c "
import subprocess
all = []
try:
    for i in range(45): all.append(subprocess.Popen(['sleep', '60']))
    print('GOT processes', flush=True)
finally:
    for p in all: p.kill()"`,
		"disk":   `head -c 48M /dev/zero >/tmp/big && echo GOT disk; rm -f /tmp/big`,
		"memory": `python3 -c "x = b'x' * (300 << 20); print('GOT memory')"`,
	}[what]
}

func smallLimits() sallyport.Limits {
	l := sallyport.DefaultLimits()
	l.Timeout, l.Memory, l.Disk, l.Processes = 2*time.Minute, 136<<20, 32<<20, 40
	return l
}

// plant makes a folder of programs that has the weakness.
func (w weakness) plant(t *testing.T) string {
	t.Helper()
	sound, dir := realtest.Programs(t), t.TempDir()
	initProgram := filepath.Join(dir, gvisor.InitProgram)
	if len(w.init) == 0 {
		if err := os.Link(filepath.Join(sound, gvisor.InitProgram), initProgram); err != nil {
			t.Fatal(err)
		}
	} else {
		rebuild(t, gvisor.InitProgram, w.init, initProgram)
	}
	script := fmt.Sprintf("#!/bin/bash\nargs=(\"$@\")\n%s\nexec %s/%s \"${args[@]}\"\n", w.words, sound, gvisor.RuntimeProgram)
	if err := os.WriteFile(filepath.Join(dir, gvisor.RuntimeProgram), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// rebuild builds a program from source without some of its protections: regular
// expressions, and what becomes of what they match.
func rebuild(t *testing.T, program string, without [][2]string, to string) {
	t.Helper()
	source, err := filepath.Glob("../../cmd/" + program + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]string{}
	for _, change := range without {
		re, found := regexp.MustCompile(change[0]), false
		for _, f := range source {
			abs, _ := filepath.Abs(f)
			from := abs
			if earlier := changed[abs]; earlier != "" {
				from = earlier
			}
			b, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if !re.Match(b) {
				continue
			}
			found = true
			changed[abs] = filepath.Join(t.TempDir(), filepath.Base(f))
			if err := os.WriteFile(changed[abs], re.ReplaceAll(b, []byte(change[1])), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !found {
			t.Fatalf("%q is not in the source of %s any more: change this test with it", change[0], program)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": changed})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", file, "-trimpath", "-buildvcs=false", "-o", to, "sallyport.dev/sallyport/cmd/"+program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// open opens a host of weak sandboxes.
func (w weakness) open(t *testing.T) bench {
	t.Helper()
	var run string
	programs := w.plant(t)
	h := gvisortest.Open(t, func(c *gvisor.Config) { c.Programs, run = programs, c.Dir })
	bundle := filepath.Join(run, "bundle", "config.json")
	b, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range w.spec {
		if !strings.Contains(string(b), change[0]) {
			t.Fatalf("%q is not in the bundle any more: change this test with it: %s", change[0], b)
		}
		b = []byte(strings.Replace(string(b), change[0], change[1], 1))
	}
	if err := os.WriteFile(bundle, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return newBenchOf(t, h)
}

// lines runs probes in one sandbox of small limits.
func (b bench) lines(t *testing.T, probes ...string) (out string, res tier.Result) {
	t.Helper()
	r := tier.Request{Image: "default", Files: []tier.File{b.file}, Limits: smallLimits(),
		Argv: []string{"bash", "-c", "cp probe /tmp && cd /tmp && chmod +x probe\n" + strings.Join(probes, "\n") + "\necho LAST"}}
	res, err := b.host.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Stdout), res
}

// Each protection is taken away in turn, and the probe that watches it says so.
// A sound sandbox prints none of these lines.
func TestPlantedWeaknesses(t *testing.T) {
	alone(t)
	sound := newBench(t)
	c := startCanary(t, sound.tool)
	dir, secret := t.TempDir(), fmt.Sprintf("planted-%d", time.Now().UnixNano())
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x "+secret), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(filepath.Join(dir, "socket"), 0o777); err != nil {
		t.Fatal(err)
	}
	go answerAll(l)
	all := planted(dir, secret, c)
	probes := make([]string, len(all))
	for i, w := range all {
		probes[i] = w.probe
	}
	out, _ := sound.lines(t, probes...)
	if strings.Count(out, "END\n") != 12 {
		t.Errorf("control: the probes did not come to their end in a sound sandbox: %s", out)
	}
	for _, w := range all {
		sees := regexp.MustCompile("(?m)" + w.sees)
		if found := sees.FindString(out); found != "" {
			t.Errorf("a sound sandbox has the weakness %q: %s", w.name, found)
		}
		t.Run(w.name, func(t *testing.T) {
			if out, res := w.open(t).lines(t, w.probe); !sees.MatchString(out) {
				t.Errorf("the probe is silent (killed by %q): %.2000s\n%.500s", res.KilledBy, out, res.Stderr)
			}
		})
	}
}

func answerAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, 64))
		_, _ = c.Write([]byte("host\n"))
		_ = c.Close()
	}
}
