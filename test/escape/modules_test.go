package escape_test

import (
	_ "embed"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/isolate/isolatetest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/realtest"
	"sallyport.dev/sallyport/tier/tiertest"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

// A module of WASI reads nothing of the host and has no descriptor but its streams
// and its own folder. The control is the same program, as one of the host.
func TestTO40_wasm(t *testing.T) {
	t.Setenv("ESCAPE_CANARY", "canary")
	h, _ := wasmtest.Open(t)
	res, err := h.Run(t.Context(), tier.Request{
		Module: &tier.Module{Language: "wasm", Code: tiertest.Module(t)}, Argv: []string{"main.wasm", "reach"}, Limits: sallyport.DefaultLimits(),
		Files: []tier.File{{Path: "own", Content: []byte("x")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := ended(t, []string{"reach"}, string(res.Stdout), string(res.Stderr))
	none(t, lines, "REACHED")
	for _, l := range with(lines, "LISTED") {
		if _, name, _ := strings.Cut(l, " "); name != "own" && name != "home" && name != "agent" && name != "output" && name != "tmp" {
			t.Errorf("it lists %s", l)
		}
	}
	for _, l := range with(lines, "ENV") {
		if strings.Contains(l, "canary") || strings.Contains(l, "/root") {
			t.Errorf("its environment is the host's: %s", l)
		}
	}
	if len(with(lines, "LISTED")) == 0 {
		t.Errorf("control: it does not list its own file: %q", lines)
	}

	native := filepath.Join(t.TempDir(), "native")
	realtest.Build(t, "./tier/tiertest/wasi", native)
	cmd := exec.Command(native, "reach")
	cmd.Dir = "/usr"
	cmd.Env = append(os.Environ(), "C=canary")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	outside := strings.Split(string(out), "\n")
	for _, want := range []string{"/etc/passwd", "../etc/passwd", "//etc/passwd"} {
		found := false
		for _, l := range with(outside, "REACHED") {
			found = found || strings.HasPrefix(l, want+" ")
		}
		if !found {
			t.Errorf("control: outside, %s was not reached", want)
		}
	}
}

//go:embed testdata/isolate.mjs
var isolated string

// atTarget is the script, with the address of a server of the host.
func atTarget(target string) []byte {
	return []byte(strings.Replace(isolated, "TARGET", strconv.Quote(target), 1))
}

// harmlessInIsolates is what the attempts get there, and is the isolate's own: see
// docs/threat-model.md.
var harmlessInIsolates = []string{"import cloudflare:sockets: connect"} // which connects to nothing: see "socket"

// A module of JavaScript gets at no file, process, socket, binding or module that is
// not its own. The control is the same script in Node.js, in a sandbox of gVisor: of
// what it tries to reach, Node.js has all but the network.
func TestTO40_isolate(t *testing.T) {
	t.Setenv("ESCAPE_CANARY", "canary")
	var heard atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			_ = c.Close()
		}
	}()
	code := atTarget(l.Addr().String())
	limits := sallyport.DefaultLimits()
	limits.Timeout = 2 * time.Minute
	h := isolatetest.Open(t)
	for range 2 { // the second may be in a process that was used
		res, err := h.Run(t.Context(), tier.Request{Owner: "attacker", Module: &tier.Module{Language: "javascript", Code: code}, Argv: []string{"main.mjs"}, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		lines := ended(t, []string{"isolate.mjs"}, string(res.Stdout), string(res.Stderr))
		none(t, lines, "REACHED", harmlessInIsolates...)
		if n := with(lines, "TRIED"); len(n) != 1 || len(n[0]) < 2 {
			t.Errorf("control: it tried %q", n)
		}
	}
	if n := heard.Load(); n > 0 {
		t.Errorf("the server heard it %d times", n)
	}

	node := newBench(t)
	res, err := node.host.Run(t.Context(), tier.Request{Image: "default", Argv: []string{"node", "main.mjs"}, Limits: limits, Files: []tier.File{{Path: "main.mjs", Content: code}}})
	if err != nil {
		t.Fatal(err)
	}
	reached := strings.Join(with(strings.Split(string(res.Stdout), "\n"), "REACHED"), "\n")
	for _, want := range []string{"import node:fs:", "import node:child_process:", "process.env:", "process.pid:", "process.binding:"} {
		if !strings.Contains(reached, want) {
			t.Errorf("control: in Node.js, %s was not reached: %s", want, reached)
		}
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err != nil {
		t.Errorf("control: %v", err)
	} else {
		_ = c.Close()
	}
}
