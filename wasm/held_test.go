package wasm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/wasm"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

// A module has its files, a disk and the output folder, and no other file.
func TestFiles(t *testing.T) {
	h, _ := wasmtest.Open(t)
	code := wasmtest.Go(t, program)
	r := request(code, "files")
	r.Files = []tier.File{{Path: "data/in.csv", Content: []byte("a,b\n")}}
	res := run(t, h, r)
	want := "\"a,b\\n\" <nil>\n\"a,b\\n\" <nil>\n<nil> <nil> <nil>\ntrue\n<nil> <nil>\n"
	if string(res.Stdout) != want {
		t.Errorf("%s\nwant\n%s", res.Stdout, want)
	}
	if f := res.Output.Files; len(f) != 1 || f[0].Path != "plot.png" || string(f[0].Content) != "png" || !slices.Equal(res.Output.LeftOut, []string{"deep/t.txt"}) {
		t.Errorf("%+v", res.Output)
	}
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("CANARY"), 0o644); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 12)
	res = run(t, h, request(code, "walk", canary, up+canary, "/tmp/"+up+canary, "/home/agent/"+up+canary, "/proc/self/environ", "/etc/passwd", up+"etc/passwd", "/dev/null"))
	out := string(res.Stdout)
	if strings.Contains(out, "CANARY") || strings.Contains(out, "root:") || strings.Count(out, " true\n") != 8 {
		t.Errorf("%s", out)
	}
	if after := out[strings.Index(out, "/ /"):]; after != "/ / <nil>\n" {
		t.Errorf("an empty folder holds %s", after)
	}
}

// The socket functions are there, and no socket.
func TestNoSockets(t *testing.T) {
	h, _ := wasmtest.Open(t)
	res := run(t, h, request(wasmtest.Go(t, program), "sockets"))
	if want := strings.Repeat("true true true\n", 16); string(res.Stdout) != want || !slices.Equal(res.Receipt.Links, []string{"lo"}) {
		t.Errorf("%s, %q", res.Stdout, res.Receipt.Links)
	}
}

// What the receipt says was read from outside of the child.
func TestReceipt(t *testing.T) {
	h, _ := wasmtest.Open(t, func(c *wasm.Config) { c.Warm = 1 })
	l := sallyport.Limits{Timeout: 90 * time.Second, Memory: 64 << 20, Disk: 1 << 20, Output: 1000, CPUs: 0.5}
	r := request(wasmtest.Module{Pages: 1}.Bytes())
	r.Limits = l.Or(r.Limits)
	res := run(t, h, r)
	got := res.Receipt
	want := sallyport.Receipt{
		Tier: "wasm", Platform: "wazero", Runtime: got.Runtime, Kernel: wasmtest.WASI, Image: got.Image, Exit: "exited", Links: []string{"lo"},
		ReadOnly: true, NoNew: true, Egress: sallyport.AppliedEgress{Rules: []string{}},
		Limits: sallyport.AppliedLimits{Memory: 64 << 20, CPUs: 0.5, Processes: 1, Disk: 1 << 20, Output: 1000, Timeout: 90_000},
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) || !strings.HasPrefix(got.Runtime, "v1.") || len(got.Image) != len("sha256-")+64 {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	if res.PeakMemory <= 0 || res.Duration <= 0 || res.ID == "" {
		t.Errorf("%+v", res)
	}
}

// A child that waited is taken once, by a request of its kind, and holds nothing of
// an earlier one.
func TestWarm(t *testing.T) {
	h, _ := wasmtest.Open(t, func(c *wasm.Config) { c.Warm = 2 })
	code := wasmtest.Go(t, program)
	facts := map[string]bool{}
	warm := 0
	for began := time.Now(); warm < 3 && time.Since(began) < 5*time.Minute; {
		res := run(t, h, request(code, "facts"))
		if res.Receipt.Warm {
			warm++
		}
		fact, _, _ := strings.Cut(string(res.Stdout), " ")
		if facts[fact] || len(fact) != 32 {
			t.Errorf("random bytes %q came twice", fact)
		}
		facts[fact] = true
		var ms int64
		if _, err := fmt.Sscan(string(res.Stdout[33:]), &ms); err != nil || time.Since(time.UnixMilli(ms)).Abs() > time.Minute {
			t.Errorf("the clock says %q, %v", res.Stdout, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if warm < 3 {
		t.Errorf("%d of %d runs found a child that waited", warm, len(facts))
	}
	if all := h.List(); len(all) != 0 {
		t.Errorf("children that wait are listed: %+v", all)
	}
}

// What a compiler or a run left in the folder of compiled modules is used again, and
// what is damaged is made again.
func TestCompiledOnce(t *testing.T) {
	dir := t.TempDir()
	h, _ := wasmtest.Open(t, func(c *wasm.Config) { c.Dir = filepath.Join(dir, "compiled") })
	code := wasmtest.Module{Pages: 1, Import: "proc_exit", Body: slices.Concat(wasmtest.I32(9), []byte{wasmtest.Call, 0})}.Bytes()
	entry := func() (string, os.FileInfo) {
		all, err := filepath.Glob(filepath.Join(dir, "compiled", "*"))
		if err != nil || len(all) != 1 {
			t.Fatalf("%q, %v", all, err)
		}
		info, err := os.Stat(all[0])
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info.Mode(), err)
		}
		return all[0], info
	}
	good := func() {
		t.Helper()
		if res := run(t, h, request(code)); res.ExitCode != 9 {
			t.Fatalf("%+v", res)
		}
	}
	good()
	_, first := entry()
	good()
	name, second := entry()
	if !os.SameFile(first, second) {
		t.Error("the module was compiled again")
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for what, b := range map[string][]byte{"cut off": whole[:len(whole)-10], "shorter than a head": whole[:20], "another key": append([]byte("x"), whole[1:]...), "bad code": append(slices.Clone(whole[:len(whole)-40]), make([]byte, 40)...), "empty": {}} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run(what, func(*testing.T) { good() })
		if now, err := os.ReadFile(name); err != nil || string(now) != string(whole) {
			t.Errorf("%s: it was not made again: %v", what, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "compiled")); err != nil {
		t.Fatal(err)
	}
	good()
}
