package tiertest

import (
	"testing"
	"time"

	"sallyport.dev/sallyport/tier"
)

// daemon leaves a grandchild that holds the streams, in a session of its own, deaf
// to what usually ends programs.
const daemon = "import os, signal, time\n" +
	"if os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n  time.sleep(3600)\n os._exit(0)\n" +
	"print('main', flush=True)\n"

// children: nothing that a program leaves behind keeps a run from ending, or
// outlives it.
func children(t *testing.T, s Subject) {
	h, dir := s.Open(t, Config{})
	g := groundOf(t, s, h, dir)
	for _, c := range []struct {
		name string
		do   deed
	}{
		{"main exits at once", deed{py: daemon, js: "setTimeout(() => console.log('late'), 3600e3); setInterval(() => {}, 10); console.log('main'); process.exit(0)"}},
		{"nohup", deed{sh: "nohup sleep 3600 & disown; (trap '' TERM; exec sleep 3600) & echo main"}},
		{"a stopped child", deed{sh: "setsid bash -c 'kill -STOP $$' & sleep 0.2; echo main"}},
	} {
		r, ok := s.request(t, c.do)
		if !ok {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			if res := run(t, h, r); res.ExitCode != 0 || string(res.Stdout) != "main\n" || res.KilledBy != "" {
				t.Errorf("got %+v", res)
			}
			soon(t, began, 0)
		})
	}
	t.Run("main never exits", func(t *testing.T) {
		d := hang("main")
		d.sh, d.py, d.limits.Timeout = "", daemon+"time.sleep(3600)\n", 2*time.Second
		if res := cutOff(t, h, s.needs(t, d)); res.KilledBy != tier.KilledByTimeout || string(res.Stdout) != "main\n" {
			t.Errorf("got %+v", res)
		}
	})
	if r, ok := s.request(t, deed{sh: "(sleep 0.05; echo late) & echo main"}); ok {
		t.Run("a child that ends within the drain window is heard", func(t *testing.T) {
			within(t, "it is heard", func() bool { // where all is slow, it may not end within the window
				out := string(run(t, h, r).Stdout)
				if out != "main\n" && out != "main\nlate\n" {
					t.Fatalf("stdout %q", out)
				}
				return out == "main\nlate\n"
			})
		})
	}
	g.quiet(t, h)
}
