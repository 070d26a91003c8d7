package gvisor_test

import (
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
)

// However a program ends, and whatever it leaves, its status is exact, its
// output whole, and its results are there: the end is told by the sandbox's
// kernel or, where something is left, by process 1.
func TestEveryEnd(t *testing.T) {
	h := gvisortest.Open(t)
	py := func(text string) tier.Request { return script("python3", "main.py", text) }
	const asm = "import ctypes\nc = ctypes.CDLL(None)\n"
	for name, c := range map[string]struct {
		r      tier.Request
		code   int
		signal string
		out    string
		files  int
	}{
		"exit":             {sh("exit 7"), 7, "", "", 0},
		"exit group":       {py("import os, threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\nos.write(1, b'x')\nos._exit(9)"), 9, "", "x", 0},
		"raw exit":         {py(asm + "print('x', flush=True)\nc.syscall(60, 5)"), 5, "", "x\n", 0},
		"leader first":     {py(asm + "import threading, os, time\nthreading.Thread(target=lambda: (time.sleep(.3), os.write(1, b'late'), os._exit(6))).start()\nc.syscall(60, 0)"), 6, "", "late", 0},
		"signal":           {py("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)"), 143, "SIGTERM", "", 0},
		"killed":           {sh("kill -9 $$"), 137, "SIGKILL", "", 0},
		"looks killed":     {sh("exit 137"), 137, "", "", 0},
		"exec":             {sh("exec python3 -c 'import sys; print(1); sys.exit(4)'"), 4, "", "1\n", 0},
		"child first":      {sh("(echo a; exit 3); echo b; exit 2"), 2, "", "a\nb\n", 0},
		"soon: a child":    {sh("(sleep 0.05; echo late) & exit 8"), 8, "", "late\n", 0},
		"a child beyond":   {sh("(sleep 3600; echo never) & exit 8"), 8, "", "", 0},
		"a daemon":         {py("import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: os.execvp('sleep', ['sleep', '3600'])\n    os._exit(0)\nos.wait()"), 0, "", "", 0},
		"a result":         {sh("echo hi > $SALLYPORT_OUTPUT/f; exit 1"), 1, "", "", 1},
		"a result renamed": {py("import os\nos.makedirs('d')\nopen('d/f', 'w').write('x')\nos.rename('d/f', '/home/output/f')\nos.utime('/home/output', (1, 1))"), 0, "", "", 1},
		"soon: its result": {sh("(sleep 0.05; echo hi > $SALLYPORT_OUTPUT/f) & exit 0"), 0, "", "", 1},
		"a result gone":    {sh("echo hi > $SALLYPORT_OUTPUT/f; rm $SALLYPORT_OUTPUT/f"), 0, "", "", 0},
		"much output":      {sh("head -c 300000 /dev/zero | tr '\\0' x"), 0, "", strings.Repeat("x", 300000), 0},
		"denied":           {py("import urllib.request\ntry: urllib.request.urlopen('http://example.com/')\nexcept Exception as e: print(e.code)"), 0, "", "403\n", 0},
	} {
		var res tier.Result
		as := func() bool {
			res = run(t, h, c.r)
			return res.ExitCode == c.code && res.Signal == c.signal && string(res.Stdout) == c.out && len(res.Output.Files) == c.files && res.KilledBy == ""
		}
		if strings.HasPrefix(name, "soon") { // where all is slow, it may not end within the window
			await.That(t, name, as)
		} else if !as() {
			t.Errorf("%s: %d %q %s %.40q %d files, %s", name, res.ExitCode, res.Signal, res.KilledBy, res.Stdout, len(res.Output.Files), res.Stderr)
		}
		if !res.Receipt.NoNew || res.Receipt.Unbounded || res.Receipt.Kernel == "" {
			t.Errorf("%s: the receipt does not tell how it was held: %+v", name, res.Receipt)
		}
		if want := map[bool]int{true: 1}[name == "denied"]; len(res.Connections) != want {
			t.Errorf("%s: %s", name, fmt.Sprint(res.Connections))
		}
	}
}
