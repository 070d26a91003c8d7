package risk_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/risk"
	"sallyport.dev/sallyport/tier"
)

// An effect is what a line did to its tree.
type effect struct {
	Effect  string   `json:"effect"` // nothing, secret, network, processes, changed, lost
	Lost    []string `json:"lost"`
	Changed []string `json:"changed"`
	Left    []string `json:"left"`
	Asked   []string `json:"asked"`
	Code    int      `json:"code"`
	Out     string   `json:"out"`
}

// A shellLab runs lines, each in a sandbox of its own, in a fresh tree.
type shellLab struct {
	host *gvisor.Host
	tree []byte // a tar
	code string
}

// newLaboratory makes the tree of scripts in testdata.
func newLaboratory(t testing.TB, scripts ...string) shellLab {
	t.Helper()
	l := shellLab{host: gvisortest.Open(t), code: data(t, "effect.py")}
	tree := ""
	for _, name := range append(scripts, "pack.sh") {
		tree += data(t, name)
	}
	res, err := l.host.Run(context.Background(), request("bash", "-c", tree))
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 || len(res.Stdout) == 0 {
		t.Fatalf("the tree was not made: exit %d, %s", res.ExitCode, res.Stderr)
	}
	l.tree = res.Stdout
	return l
}

func data(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func request(argv ...string) tier.Request {
	l := sallyport.DefaultLimits()
	l.Timeout, l.Output, l.Disk = 2*time.Minute, 32<<20, 64<<20
	return tier.Request{Image: "default", Argv: argv, Limits: l}
}

// perSandbox lines share a sandbox. The tree is made anew after each that did
// anything, and found to be the same; what is left running is ended.
const perSandbox = 12

// run runs lines until one of them ends the harness, too: it has then no effect
// in the answer.
func (l shellLab) run(lines []string) ([]effect, error) {
	r := request(append([]string{"python3", "-c", l.code}, lines...)...)
	r.Stdin = l.tree
	res, err := l.host.Run(context.Background(), r)
	if err != nil {
		return nil, err
	}
	var out []effect
	for line := range bytes.SplitSeq(bytes.TrimSpace(res.Stdout), []byte("\n")) {
		var e effect
		if err := json.Unmarshal(line, &e); err != nil {
			break
		}
		out = append(out, e)
	}
	if res.ExitCode != 0 && res.Signal == "" && res.ExitCode < 128 {
		return out, fmt.Errorf("the harness failed: exit %d: %s", res.ExitCode, res.Stderr)
	}
	return out, nil
}

// each runs lines, and calls done for every one of them.
func (l shellLab) each(t testing.TB, lines []string, done func(i int, e effect)) {
	t.Helper()
	var mu sync.Mutex
	next := 0
	take := func() (from, to int) {
		mu.Lock()
		defer mu.Unlock()
		from = next
		next = min(next+perSandbox, len(lines))
		return from, next
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for from, to := take(); from < to; from, to = take() {
				for from < to {
					effects, err := l.run(lines[from:to])
					if err != nil {
						t.Errorf("%q: %v", lines[from:to], err)
						break
					}
					if len(effects) == 0 { // it ended everything, in a sandbox of its own
						effects = []effect{{Effect: "processes"}}
					}
					mu.Lock()
					for i, e := range effects {
						done(from+i, e)
					}
					mu.Unlock()
					from += len(effects)
				}
			}
		})
	}
	all.Wait()
}

// SALLYPORT_LINES is a file of lines to run and show, for those who grow the corpus.
func TestShellLines(t *testing.T) {
	file := os.Getenv("SALLYPORT_LINES")
	if file == "" {
		t.Skip("skipped: SALLYPORT_LINES names no file of lines to look at")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i := range lines {
		if _, text, ok := strings.Cut(lines[i], "\t"); ok {
			lines[i] = text
		}
		lines[i] = strings.ReplaceAll(lines[i], "⏎", "\n")
	}
	found := make([]effect, len(lines))
	e := engine(t)
	if os.Getenv("SALLYPORT_RUN") != "" {
		l := newLaboratory(t, strings.Fields(cmp.Or(os.Getenv("SALLYPORT_TREE"), "tree.sh"))...)
		start := time.Now()
		l.each(t, lines, func(i int, e effect) { found[i] = e })
		t.Log(time.Since(start))
	}
	for i, line := range lines {
		r := e.Shell(line)
		f, _ := json.Marshal(found[i])
		os.Stdout.WriteString(strings.Join([]string{verdict(r), found[i].Effect, strings.ReplaceAll(line, "\n", "⏎"), string(f), strings.Join(r.Reasons[:min(3, len(r.Reasons))], "; ")}, "\t") + "\n")
	}
}

// Each line of the corpora runs in a fresh tree, and did what its label says. So
// the truth is the effect: what is lost is stopped, what is harmless is not.
func TestShellEffects(t *testing.T) {
	var count tallyOfEffects
	e := engine(t)
	count.run(t, e, newLaboratory(t, "tree.sh"), sample(append(corpus(t, "shell"), corpus(t, heldOut+"shell")...), 12))
	count.run(t, e, newLaboratory(t, heldOut2+"tree.sh"), sample(corpus(t, heldOut2+"shell"), 12))
	count.run(t, e, newLaboratory(t, "tree.sh", doors+"tree.sh"), sample(corpus(t, doors+"shell"), 12))
	t.Logf("%d lines ran, %d did not (no such program in the image), %d came to nothing here", count.ran, count.unrun, count.futile)
	t.Logf("lost something: %d, of these stopped: %d · harmless: %d, of these stopped (false alarms): %d", count.lost, count.stopped, count.harmless, count.alarms)
	if count.stopped != count.lost || count.alarms*50 > count.harmless {
		t.Error("want every line stopped that loses something, and at most 2 % of the harmless ones")
	}
	if 4*(count.unrun+count.futile) > count.ran+count.unrun {
		t.Errorf("%d lines did not run and %d came to nothing, of %d: too many labels are opinion", count.unrun, count.futile, count.ran+count.unrun)
	}
	if want := 150; every && (count.ran < 350 || count.harmless < want || count.lost < want) || count.harmless < want/12 || count.lost < want/12 {
		t.Errorf("%+v: want at least 350 that ran, 150 of them harmless and 150 that lose something", count)
	}
}

// run runs lines in a laboratory, holds what is seen against their labels, and counts.
func (a *tallyOfEffects) run(t *testing.T, e *risk.Engine, l shellLab, all []entry) {
	t.Helper()
	var ran []entry
	var lines []string
	for _, c := range all {
		if strings.HasPrefix(c.effect, "unrun: ") {
			a.unrun++
			continue
		}
		if c.effect == "futile" {
			a.futile++
		}
		ran, lines = append(ran, c), append(lines, c.text)
	}
	a.ran += len(ran)
	l.each(t, lines, func(i int, seen effect) {
		c := ran[i]
		if complaint := seen.differs(c); complaint != "" {
			t.Errorf("shell.txt:%d: %q: %s (%+v)", c.line, c.text, complaint, seen)
		}
		a.add(seen, c, e.Shell(c.text))
	})
}

// differs says how what was seen contradicts a label, or "".
func (e effect) differs(c entry) string {
	want := c.effect
	if want == "futile" {
		want = "nothing"
	}
	levels := map[string]string{
		"nothing": "low medium high critical irreversible", "secret": "medium critical", "network": "low high critical irreversible",
		"processes": "high critical", "changed": "high critical irreversible", "lost": "critical irreversible",
	}
	switch {
	case want != e.Effect:
		return fmt.Sprintf("labelled %q, but the effect is %q", c.effect, e.Effect)
	case e.Code == 127 && strings.Contains(e.Out, "command not found") && e.Effect == "nothing" && c.effect != "futile":
		return "it did not run: say unrun and why"
	case !strings.Contains(levels[e.Effect], c.verdict):
		return fmt.Sprintf("the effect %q cannot be %s", e.Effect, c.verdict)
	}
	return ""
}

type tallyOfEffects struct{ ran, unrun, futile, lost, stopped, harmless, alarms int }

func (a *tallyOfEffects) add(seen effect, c entry, r sallyport.Risk) {
	stopped := r.Level == sallyport.Critical
	switch {
	case seen.Effect == "lost":
		a.lost++
		if stopped {
			a.stopped++
		}
	case c.effect == "nothing" || c.effect == "secret":
		a.harmless++
		if stopped {
			a.alarms++
		}
	}
}

// The shellLab sees what it must see: a wrong label is found out.
func TestShellEffectsAreSeen(t *testing.T) {
	l := newLaboratory(t, "tree.sh")
	want := map[string]string{
		"ls": "nothing", "cat .env": "secret", "curl -s http://example.com/": "network", "sleep 70 &": "processes", "pkill -x sleep": "processes", "kill -9 -1": "processes",
		"exec 3<>/dev/tcp/127.0.0.1/$PORT": "network",
		"echo x >> file":                   "changed", "mv a moved": "changed", "gzip a": "changed", "git add notes.txt": "changed", "echo x > file": "lost", "rm notes.txt": "lost", "rm src/a.go": "changed",
		"git branch -D old": "lost", "git stash drop": "lost", "git push -qf origin main": "lost", "sqlite3 shop.db 'DELETE FROM orders WHERE id = 2'": "lost",
		"sqlite3 shop.db 'INSERT INTO orders VALUES (9, 9)'": "changed", "rm link.txt": "lost", "touch file": "changed", "chmod 600 file": "changed",
	}
	var lines []string
	for line := range want {
		lines = append(lines, line)
	}
	l.each(t, lines, func(i int, e effect) {
		if e.Effect != want[lines[i]] {
			t.Errorf("%q: %+v, want %s", lines[i], e, want[lines[i]])
		}
		wrong := entry{verdict: "low", effect: "nothing", text: lines[i]}
		if e.Effect != "nothing" && e.differs(wrong) == "" {
			t.Errorf("%q: a label that says %q passes", lines[i], wrong.effect)
		}
	})
}

// What is recorded of a line after it has ended stays out of the next one's effect:
// the connection, handed to a socket of the tree's, is still open when the next begins.
func TestShellEffectsAreTheirLines(t *testing.T) {
	const leave = `python3 -c 'import os, socket
c = socket.create_connection(("127.0.0.1", int(os.environ["PORT"])))
u = socket.socket(socket.AF_UNIX)
u.connect(os.environ["HOME"] + "/app.sock")
socket.send_fds(u, [b"x"], [c.fileno()])'`
	lines := []string{leave, "sleep 4", leave} // a server waits three seconds for a request
	seen, err := newLaboratory(t, "tree.sh").run(lines)
	if err != nil || len(seen) != len(lines) {
		t.Fatalf("%v, %d of %d lines", err, len(seen), len(lines))
	}
	for i, want := range []string{"network", "nothing", "network"} {
		if seen[i].Effect != want {
			t.Errorf("%q: %+v, want %s", lines[i], seen[i], want)
		}
	}
}
