package tiertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
)

const (
	memoryLimit = 192 << 20
	beyond      = 260 // MiB
	inside      = 150
)

// take is a program of Python that takes so many MiB.
func take(mib int) string {
	return fmt.Sprintf("x = bytearray(%d << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n", mib)
}

// memory: going beyond the limit is said so, whoever of the program did it, and
// nobody else is harmed.
func memory(t *testing.T, s Subject) {
	h, _ := s.Open(t, Config{})
	child := "import os, sys\np = os.fork()\nif p == 0:\n  " + strings.ReplaceAll(take(beyond), "\n", "\n  ") + "\n  os._exit(0)\nos.waitpid(p, 0)\n"
	core := []string{"all at once", "beside the heap", "a child only", "tmpfs counts", "within"}
	for _, c := range []struct {
		name   string
		do     deed
		killed tier.KilledBy
	}{
		{"main process", deed{py: take(beyond), wasi: []string{"take", fmt.Sprint(beyond)}, js: "const all = []; for (;;) all.push(new Array(1e5).fill(all.length))"}, tier.KilledByMemory},
		{"beside the heap", deed{js: "const all = []; for (;;) { const b = new Uint8Array(8 << 20); b.fill(1); all.push(b) }"}, tier.KilledByMemory},
		{"one string", deed{js: "const all = []; for (;;) all.push('x'.repeat(1 << 20) + all.length + 'y'.repeat(1 << 20)).toString()"}, tier.KilledByMemory},
		{"a child only", deed{py: child}, tier.KilledByMemory},
		{"shared mapping", deed{py: fmt.Sprintf("import mmap\nm = mmap.mmap(-1, %d << 20)\nfor i in range(0, len(m), 4096): m[i] = 1\n", beyond)}, tier.KilledByMemory},
		{"many small processes", deed{py: "import os, time\nfor i in range(40):\n  if os.fork() == 0:\n    x = bytearray(8 << 20)\n    for j in range(0, len(x), 4096): x[j] = 1\n    time.sleep(600)\ntime.sleep(600)\n"}, tier.KilledByMemory},
		{"tmpfs counts", deed{sh: fmt.Sprintf("head -c %dM /dev/zero >/tmp/x; exit 0", beyond), limits: sallyport.Limits{Disk: 1 << 30}}, tier.KilledByMemory},
		{"all at once", deed{py: "b'x' * (3 << 30)"}, tier.KilledByMemory},
		{"V8 heap", deed{argv: []string{"node", "-e", "const a = []; for (;;) a.push(new Array(1e5).fill(a.length))"}}, tier.KilledByMemory},
		{"within V8's heap", deed{argv: []string{"node", "-e", "const a = []; while (a.length < 125) a.push(new Array(1 << 17).fill(a.length))"}}, ""},
		{"within", deed{py: take(inside), wasi: []string{"take", "100"}, js: "const all = []; for (let i = 0; i < 40; i++) { const b = new Uint8Array(1 << 20); b.fill(1); all.push(b) }"}, ""},
	} {
		c.do.limits.Memory = memoryLimit
		r, ok := s.request(t, c.do)
		if !ok || s.briefly() && !slices.Contains(core, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			res := run(t, h, r)
			if res.KilledBy != c.killed || (c.killed == "") != (res.ExitCode == 0) || (c.killed != "") != (res.Receipt.Exit == "memory") {
				t.Errorf("exit %d, killed by %q, receipt %q, peak %d MiB, stderr %.300q; want %q", res.ExitCode, res.KilledBy, res.Receipt.Exit, res.PeakMemory>>20, res.Stderr, c.killed)
			}
			if s.Modules == "" && res.PeakMemory < inside<<20 || res.PeakMemory <= 0 || res.PeakMemory > memoryLimit+s.Own {
				t.Errorf("peak %d MiB", res.PeakMemory>>20)
			}
		})
	}
	if res := run(t, h, s.needs(t, say("still"))); string(res.Stdout) != "still\n" {
		t.Errorf("afterwards: %+v", res)
	}
}
