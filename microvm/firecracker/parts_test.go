package firecracker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/vmm"
)

// served is a fake in this process, with a client.
func served(t *testing.T, wrong string) (*fake, *client) {
	t.Helper()
	f, err := newFake(wrong)
	if err != nil {
		t.Fatal(err)
	}
	j := jailIn(t)
	if err := os.Mkdir(filepath.Join(j.dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(j.dir) // where a Firecracker is; and a socket's path is bounded
	l, err := net.Listen("unix", apiSocket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // ends with the test
	t.Cleanup(func() { server.Close() })
	for _, name := range []string{kernelFile, initrdFile, rootFile, memoryFile, stateFile} {
		if err := j.write(name, strings.NewReader(map[string]string{stateFile: "devices"}[name])); err != nil {
			t.Fatal(err)
		}
	}
	return f, newClient(j)
}

func jailIn(t *testing.T) *jail {
	t.Helper()
	j, err := newJail(vmm.Place{ID: strings.Repeat("long-", 12), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.close)
	return j
}

// The description itself refuses what it should, so that a request which passes
// says something.
func TestNotRunAgainstFirecrackerOrder(t *testing.T) {
	pause, create := request{"PATCH", "/vm", vmState{"Paused"}}, request{"PUT", "/snapshot/create", snapshotCreate{"Full", "s", "m"}}
	load := request{"PUT", "/snapshot/load", snapshotLoad{SnapshotPath: stateFile, MemBackend: memBackend{"File", memoryFile}, VsockOverride: vsockOverride{"w.sock"}}}
	vsockFirst := request{"PUT", "/vsock", vsock{guestCID, vsockFile}}
	start := request{"PUT", "/actions", action{"InstanceStart"}}
	for name, tt := range map[string]struct {
		requests []request
		want     string // "" if all are taken
	}{
		"pause, save":              {[]request{vsockFirst, start, pause, create}, ""},
		"start of nothing":         {[]request{start}, "not supported when the microVM is fresh"},
		"pause before the start":   {[]request{vsockFirst, pause}, "not supported when the microVM is configured"},
		"save while it runs":       {[]request{vsockFirst, start, create}, "not supported when the microVM is running"},
		"a device after start":     {[]request{vsockFirst, start, {"PUT", "/entropy", struct{}{}}}, "not supported when the microVM is running"},
		"load":                     {[]request{load, {"PATCH", "/vm", vmState{"Resumed"}}}, ""},
		"load over a device":       {[]request{vsockFirst, load}, "not supported when the microVM is configured"},
		"an unknown member":        {[]request{{"PUT", "/vsock", map[string]any{"guest_cid": 3, "uds_path": "v", "speed": 1}}}, "deserializing"},
		"a member that is missing": {[]request{{"PUT", "/boot-source", map[string]any{"boot_args": "x"}}}, "deserializing"},
		"a state that is none":     {[]request{vsockFirst, start, {"PATCH", "/vm", vmState{"Stopped"}}}, "deserializing"},
		"an unknown path":          {[]request{{"PUT", "/network", struct{}{}}}, "Invalid request"},
		"too long":                 {[]request{{"PUT", "/boot-source", bootSource{KernelImagePath: strings.Repeat("k", 60000)}}}, "413"},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := served(t, "")
			var err error
			for _, r := range tt.requests {
				if err != nil {
					t.Fatal("before the last request:", err)
				}
				err = c.do(t.Context(), r)
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestNotRunAgainstFirecrackerSilence(t *testing.T) {
	_, c := served(t, "PUT /entropy is silent")
	c.patience = 50 * time.Millisecond
	within, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	err := c.do(within, request{"PUT", "/entropy", struct{}{}})
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok || !strings.Contains(e.Message, "did not answer PUT /entropy within 50ms") || e.Hint == "" {
		t.Error(err)
	}
	c.patience = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.do(ctx, request{"PUT", "/entropy", struct{}{}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What a hostile Firecracker puts in the place of its sockets and files is not
// followed. Each has a control, which is.
func TestHostileJail(t *testing.T) {
	outside := t.TempDir()
	t.Chdir(outside)
	l, err := net.Listen("unix", "host.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.WriteFile("host.txt", []byte("the host's"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := jailIn(t)
	t.Chdir(j.dir)
	own, err := net.Listen("unix", "own.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(j.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(outside, "host.sock"), "link.sock")
	link("own.sock", "inner.sock")
	link(outside, "dir")
	for name, reached := range map[string]bool{"own.sock": true, "link.sock": false, "inner.sock": false, "dir/host.sock": false, "../root/own.sock": false} {
		c, err := j.dial(t.Context(), name)
		if (err == nil) != reached {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			c.Close()
		}
	}
	if err := os.WriteFile(filepath.Join(j.dir, "own.txt"), []byte("its own"), 0o600); err != nil {
		t.Fatal(err)
	}
	link(filepath.Join(outside, "host.txt"), "link.txt")
	if err := os.Link(filepath.Join(outside, "host.txt"), filepath.Join(j.dir, "second.txt")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(j.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, taken := range map[string]bool{"own.txt": true, "link.txt": false, "second.txt": false, "dir/host.txt": false, "pipe": false, "own.sock": false} {
		f, _, err := j.file(name)
		if (err == nil) != taken {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			f.Close()
		}
	}
	if _, err := j.take("own.txt", 3); err == nil {
		t.Error("a file that is too large was taken")
	}
}

func TestGroupOf(t *testing.T) {
	for _, dirs := range [][]string{nil, {"/"}, {"/proc"}, {"/no/such/group"}, {"/a", "/b"}} {
		if group, err := groupOf(dirs); err == nil {
			t.Errorf("%q is group %q", dirs, group)
		}
	}
	if top := unifiedMount(); top != "" {
		if group, err := groupOf([]string{top}); err == nil {
			t.Errorf("the topmost group is %q", group)
		}
	}
}

func TestParseOK(t *testing.T) {
	for line, want := range map[string]uint32{
		"OK 1073741824\n": 1 << 30, "OK 0\n": 0, "OK 4294967295\n": 1<<32 - 1,
	} {
		if got, err := parseOK(line); err != nil || got != want {
			t.Errorf("%q is %d, %v", line, got, err)
		}
	}
	for _, line := range []string{"", "\n", "OK\n", "OK \n", "OK 1", "OK -1\n", "OK +1\n", "OK 01\n", "OK 4294967296\n", "OK 1 \n", "ok 1\n", " OK 1\n", "OK 1\r\n"} {
		if got, err := parseOK(line); err == nil {
			t.Errorf("%q is %d", line, got)
		}
	}
}

// Nothing that follows the handshake is taken with it, and an answer without an end
// is not waited for.
func TestHandshake(t *testing.T) {
	for answer, want := range map[string]string{"OK 7\nagent": "agent", strings.Repeat("O", 100): "", "": "", "OK": "", "NO\n": ""} {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Read(make([]byte, 100)) // the request
			_, _ = theirs.Write([]byte(answer))   // not all of it may be read
			theirs.Close()
		}()
		err := handshake(ours, 1024)
		rest := make([]byte, 16)
		n, _ := ours.Read(rest)
		if (err == nil) != (want != "") || want != "" && string(rest[:n]) != want {
			t.Errorf("%q: %v, then %q", answer, err, rest[:n])
		}
		ours.Close()
	}
}

// Jails share a copy of each file, and not each other's.
func TestShelf(t *testing.T) {
	b := &Backend{Dir: filepath.Join(t.TempDir(), "shelf")}
	image, other := file(t, "the image"), file(t, "another")
	var before unix.Stat_t
	if err := unix.Fstat(int(image.Fd()), &before); err != nil {
		t.Fatal(err)
	}
	inode := func(f *os.File) uint64 {
		j := jailIn(t)
		if err := (&vm{backend: b, jail: j}).insert("f", f); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(j.dir, "f"), &st); err != nil || st.Mode&0o777 != 0o444 {
			t.Fatalf("%o, %v", st.Mode, err)
		}
		want := map[*os.File]string{image: "the image", other: "another"}[f]
		if got, err := os.ReadFile(filepath.Join(j.dir, "f")); err != nil || want != "" && string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
		return st.Ino
	}
	if first, again := inode(image), inode(image); first != again || first == inode(other) {
		t.Error("files are not told apart by what they are")
	}
	var after unix.Stat_t
	if err := unix.Fstat(int(image.Fd()), &after); err != nil || after.Ctim != before.Ctim {
		t.Errorf("the image counts as changed: %v", err)
	}
	kept := inode(other)
	if _, err := other.WriteAt([]byte("changed"), 0); err != nil {
		t.Fatal(err)
	}
	if got := func() uint64 { j := jailIn(t); return shelvedInode(t, b, j, other) }(); got == kept {
		t.Error("a file that was changed is taken for what it was")
	}
	for i := range shelved + 4 {
		inode(file(t, fmt.Sprint("file ", i)))
	}
	if entries, err := os.ReadDir(b.Dir); err != nil || len(entries) != shelved {
		t.Errorf("%d files are kept, %v", len(entries), err)
	}
}

func shelvedInode(t *testing.T, b *Backend, j *jail, f *os.File) uint64 {
	t.Helper()
	if err := (&vm{backend: b, jail: j}).insert("f", f); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(j.dir, "f"), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func FuzzParseOK(f *testing.F) {
	f.Add("OK 1\n")
	f.Add("OK 4294967296\n")
	f.Fuzz(func(t *testing.T, line string) {
		if n, err := parseOK(line); err == nil && line != fmt.Sprintf("OK %d\n", n) {
			t.Errorf("%q is %d", line, n)
		}
	})
}

func FuzzFault(f *testing.F) {
	f.Add([]byte(`{"fault_message":"no"}`))
	f.Add([]byte("\x1b[2J"))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, ok := errors.AsType[*sallyport.Error](refusal("PUT /x", 400, body))
		if !ok || len(e.Message) > 4096 || bytes.ContainsFunc([]byte(e.Message), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q", e.Message)
		}
	})
}
