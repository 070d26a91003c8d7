package microvm_test

import (
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/tier"
)

func request(argv ...string) tier.Request {
	l := sallyport.DefaultLimits()
	l.Timeout = 2 * time.Minute
	return tier.Request{Image: "default", Argv: argv, Limits: l}
}

func python(code string) tier.Request {
	r := request("python3", "main.py")
	r.Files = []tier.File{{Path: "main.py", Content: []byte(code)}}
	return r
}

func run(t *testing.T, h *microvm.Host, r tier.Request) tier.Result {
	t.Helper()
	began := time.Now()
	res, err := h.Run(t.Context(), r)
	if err != nil {
		t.Fatalf("%v: %v", r.Argv, err)
	}
	t.Logf("%.60q: %d %s in %v, peak %d", r.Argv, res.ExitCode, res.KilledBy, time.Since(began).Round(time.Millisecond), res.PeakMemory)
	return res
}

// What a program does and is refused in a microVM, in both ways in which one is
// made: with its sandbox started in the snapshot, and without. What every tier must do
// the tests of all tiers (tier/tiertest) ask for.
func TestRun(t *testing.T) {
	h := microvmtest.Open(t)
	platform, err := h.Probe(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, refused := range h.Refused() {
		t.Log("not used:", refused)
	}
	first := run(t, h, request("sh", "-c", `echo out; echo err >&2; cat; id -u; pwd; exit 42`)) // its snapshot may be made meanwhile
	if err := h.Prepare(t.Context(), request("true")); err != nil {
		t.Fatal(err)
	}
	r := request("sh", "-c", `echo out; echo err >&2; cat; id -u; pwd; exit 42`)
	r.Stdin = []byte("in\n")
	res := run(t, h, r)
	if string(res.Stdout) != "out\nin\n1000\n/home/agent\n" || string(res.Stderr) != "err\n" || res.ExitCode != 42 || first.ExitCode != 42 {
		t.Errorf("%d %q %q", res.ExitCode, res.Stdout, res.Stderr)
	}
	c := res.Receipt
	if c.Tier != sallyport.TierMicroVM || !strings.Contains(platform, c.Platform) || !strings.Contains(platform, "("+c.Accel+")") || !c.ReadOnly || !c.NoNew || c.Unbounded || len(c.Links) != 1 ||
		c.Limits.Memory != r.Limits.Memory || c.Limits.Disk != r.Limits.Disk || c.Limits.Processes != r.Limits.Processes || c.Limits.CPUs != 1 {
		t.Errorf("receipt %+v", c)
	}
	for name, c := range map[string]struct {
		r     tier.Request
		alter func(*sallyport.Limits)
		want  func(tier.Result) bool
	}{
		"not to run": {r: request("/etc/passwd"), want: func(r tier.Result) bool { return r.ExitCode == 126 }},
		"traced": {r: request("python3", "-c", "import ctypes, os; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0), flush=True); os.kill(os.getpid(), 11)"), want: func(r tier.Result) bool {
			return string(r.Stdout) == "0\n" && r.ExitCode == 139 && r.Signal == "SIGSEGV"
		}},
		"shared":    {r: request("python3", "-c", "import mmap\nm = mmap.mmap(-1, 160 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1"), alter: func(l *sallyport.Limits) { l.Memory = 96 << 20 }, want: func(r tier.Result) bool { return r.KilledBy == tier.KilledByMemory }},
		"artifacts": {r: request("sh", "-c", "echo x >$SALLYPORT_OUTPUT/a.txt"), want: func(r tier.Result) bool { return len(r.Output.Files) == 1 && r.Output.Files[0].Path == "a.txt" }},
		"a refusal": {r: request("curl", "-s", "http://example.com/"), want: func(r tier.Result) bool {
			return len(r.Connections) == 1 && strings.Contains(string(r.Stdout), "egress_denied")
		}},
		"read-only": {r: request("sh", "-c", "touch /usr/x; touch /etc/x; echo $?"), want: func(r tier.Result) bool { return strings.Contains(string(r.Stderr), "Read-only") }},
		"its devices": {r: request("sh", "-c", "cd /dev; echo *"), want: func(r tier.Result) bool {
			return string(r.Stdout) == "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero\n"
		}},
	} {
		if c.alter != nil {
			c.alter(&c.r.Limits)
		}
		if res := run(t, h, c.r); !c.want(res) {
			t.Errorf("%s: %d %s %q %q %q %+v", name, res.ExitCode, res.KilledBy, res.Stdout, res.Stderr, res.LimitsHit, res.Connections)
		}
	}
}

// A program within its memory may read as much as it likes: what the guest keeps of
// files is not its own, and ends nothing.
func TestReadingBesideMemory(t *testing.T) {
	h := microvmtest.Open(t)
	r := python(`
import subprocess
x = bytearray(180 << 20)
for i in range(0, len(x), 4096): x[i] = 1
subprocess.run("find /usr -xdev -type f -print0 | xargs -0 cat >/dev/null", shell=True, check=True)
print("read")
`)
	r.Limits.Memory, r.Limits.Timeout = 256<<20, 10*time.Minute
	if res := run(t, h, r); string(res.Stdout) != "read\n" || res.KilledBy != "" {
		t.Errorf("killed by %q, peak %d MiB: %q %.300q", res.KilledBy, res.PeakMemory>>20, res.Stdout, res.Stderr)
	}
}
