package tiertest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
)

// A limitCase is a program and the limit that it runs into.
type limitCase struct {
	name string
	do   deed
	hit  string // "": none
	want string // before the first * if there is one, after the last
}

// limitsByName: each limit acts, and is named; what stays within is not told of any.
func limitsByName(t *testing.T, s Subject) {
	h, _ := s.Open(t, Config{})
	for _, c := range []limitCase{
		{
			"processes", deed{
				py:     "import os, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n    n += 1\nexcept OSError as e: print(n, e.errno)",
				limits: sallyport.Limits{Processes: 10},
			}, tier.LimitProcesses, "9 11\n",
		},
		{"processes, within", deed{sh: "for i in 1 2 3 4 5; do sleep 0.3 & done; wait"}, "", ""},
		{
			"disk is one for all folders", deed{
				sh:     "for d in /tmp /dev/shm /home/agent /run; do head -c 3M /dev/zero >$d/x 2>/dev/null || echo full $d; done",
				limits: sallyport.Limits{Disk: 8 << 20},
			}, tier.LimitDisk, "full /home/agent\nfull /run\n",
		},
		{"disk, within", deed{sh: "head -c 3M /dev/zero >/tmp/x", limits: sallyport.Limits{Disk: 8 << 20}}, "", ""},
		{
			"inodes", deed{
				py:     "n = 0\ntry:\n  while True: open('/tmp/%d' % n, 'w').close(); n += 1\nexcept OSError as e: print(n < 2100, e.errno)",
				limits: sallyport.Limits{Disk: 8 << 20},
			}, tier.LimitDisk, "True 28\n",
		},
		{
			"output", deed{
				sh: "yes | head -c 5000; touch done; ls", js: "for (let i = 0; i < 2500; i++) console.log('y')", wasi: []string{"fill", "y\n", "2500"},
				limits: sallyport.Limits{Output: 100},
			}, tier.LimitOutput, strings.Repeat("y\n", 50),
		},
		{
			"output of the other stream", deed{
				sh: "yes n | head -c 5000 >&2; echo went on", js: "for (let i = 0; i < 2500; i++) console.error('n'); console.log('went on')",
				wasi: []string{"alternate", "2500"}, limits: sallyport.Limits{Output: 100},
			}, tier.LimitOutput, "*",
		},
		{"output, within", deed{sh: "printf %100s x", wasi: []string{"fill", "0123456789", "10"}, js: "console.log('x'.repeat(99))", limits: sallyport.Limits{Output: 100}}, "", "*"},
	} {
		r, ok := s.request(t, c.do)
		if !ok {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			res := run(t, h, r)
			want := []string{c.hit}
			if c.hit == "" {
				want = nil
			}
			if c.want != "*" && string(res.Stdout) != c.want || !slices.Equal(res.LimitsHit, want) || res.ExitCode != 0 || res.KilledBy != "" {
				t.Errorf("stdout %.200q, limits %q, exit %d, killed by %q, stderr %.200q", res.Stdout, res.LimitsHit, res.ExitCode, res.KilledBy, res.Stderr)
			}
			if res.Truncated != (c.hit == tier.LimitOutput) || int64(max(len(res.Stdout), len(res.Stderr))) > r.Limits.Output {
				t.Errorf("truncated %v, %d and %d bytes", res.Truncated, len(res.Stdout), len(res.Stderr))
			}
		})
	}
}

// measure prints what a program in the sandbox finds itself.
const measure = `
import os, resource, json
fs, u = os.statvfs("/tmp"), os.uname()
print(json.dumps({
    "Processes": resource.getrlimit(resource.RLIMIT_NPROC)[0] + ("gvisor" in u.release), "Disk": fs.f_blocks * fs.f_frsize,
    "Kernel": " ".join([u.sysname, u.release, u.version]), "ReadOnly": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
    "Links": [l.split(":")[0].strip() for l in open("/proc/net/dev") if ":" in l],
    "NoNew": "NoNewPrivs:\t1" in open("/proc/self/status").read()}))
`

// receipt: it is what the program measures, cold and warm, and names what held it.
func receipt(t *testing.T, s Subject) {
	h, _ := s.Open(t, Config{Warm: 1})
	platform, err := h.Probe(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	r := s.needs(t, say("x"))
	if s.Modules == "" {
		r.Argv, r.Files = []string{"python3", "main.py"}, []tier.File{{Path: "main.py", Content: []byte(measure)}}
	}
	r.Limits = sallyport.Limits{Memory: 200 << 20, CPUs: 0.5, Processes: 20, Disk: 9 << 20, Output: 5000, Timeout: 2 * time.Minute}
	for _, warm := range []bool{false, true} {
		res := run(t, h, r)
		if warm {
			settle(t, h, r)
			within(t, "a run has a sandbox that waited", func() bool { res = run(t, h, r); return res.Receipt.Warm })
		}
		rc := res.Receipt
		if rc.Tier != s.Name || !strings.HasPrefix(platform, rc.Platform) || rc.Platform == "" || rc.Runtime == "" || rc.Exit != "exited" || rc.Unbounded || !rc.NoNew || !rc.ReadOnly {
			t.Errorf("warm %v: %+v", rc.Warm, rc)
		}
		l := rc.Limits
		if l.Memory != 200<<20 || l.Output != 5000 || l.Timeout != 120_000 || rc.Egress.Rules == nil || len(rc.Egress.Rules) > 0 || len(rc.Egress.Injected) > 0 {
			t.Errorf("warm %v: %+v, %+v", rc.Warm, l, rc.Egress)
		}
		if s.Modules == "" {
			measured(t, res)
		}
	}
}
