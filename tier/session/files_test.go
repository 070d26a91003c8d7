package session_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier/session"
)

// A room is a session that files are moved in and out of.
type room struct {
	t *testing.T
	x *session.Sessions
	k session.Key
	c session.Call
}

func newRoom(t *testing.T, disk int64) room {
	c := call("a", "files", "shell", "true")
	if disk > 0 {
		c.Request.Limits.Disk = disk
		c.Request.Limits.Memory = disk + 256<<20 // what is stored counts as memory
	}
	r := room{t, place(t), c.Key, c}
	r.sh("true")
	return r
}

// sh runs a script in the session and returns what it prints.
func (r room) sh(script string) string {
	r.t.Helper()
	r.c.Code = []byte(script)
	res := must(r.t, r.x, r.c)
	if len(res.Stderr) > 0 {
		r.t.Logf("%s: stderr %s", script, res.Stderr)
	}
	return string(res.Stdout)
}

func (r room) put(name string, size int64, from io.Reader) error {
	_, err := r.x.Put(r.t.Context(), r.k, nil, name, size, from)
	return err
}

func (r room) get(name string) (string, error) {
	var b bytes.Buffer
	_, err := r.x.Get(r.t.Context(), r.k, nil, name, 0, -1, &b)
	return b.String(), err
}

// A pattern is n bytes that do not repeat within a page.
type pattern struct{ at, n int64 }

func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.n {
		return 0, io.EOF
	}
	k := int(min(int64(len(b)), p.n-p.at))
	for i := range b[:k] {
		v := uint64(p.at+int64(i)) * 0x9E3779B97F4A7C15
		b[i] = byte(v >> 56)
	}
	p.at += int64(k)
	return k, nil
}

// Files of every size and name come back as they went in.
func TestFO56_FilesAreExact(t *testing.T) {
	r := newRoom(t, 160<<20)
	for _, size := range []int64{0, 1, 1<<20 + 1, 100 << 20} {
		want, got := sha256.New(), sha256.New()
		if err := r.put("in/of/size", size, io.TeeReader(&pattern{n: size}, want)); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		n, err := r.x.Get(t.Context(), r.k, nil, "in/of/size", 0, -1, got)
		if err != nil || n != size || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
			t.Errorf("%d bytes: %d came back, or other ones: %v", size, n, err)
		}
		if inside := r.sh("sha256sum < in/of/size"); !strings.HasPrefix(inside, fmt.Sprintf("%x", want.Sum(nil))) {
			t.Errorf("%d bytes: inside it is %s", size, inside)
		}
	}
	var tail bytes.Buffer
	if n, err := r.x.Get(t.Context(), r.k, nil, "in/of/size", 100<<20-3, 10, &tail); err != nil || n != 100<<20 || tail.Len() != 3 {
		t.Errorf("the tail: %q of %d, %v", tail.Bytes(), n, err)
	}
	r.sh("rm -r in")
	names := []string{"a b", `q'uo"te`, "new\nline", "-dash", "--", "ünï-日本", strings.Repeat("n", 255), "tab\t", "$(x)`y`", "*", "\\back", "a:b", "%2e%2e", "d e/p/th"}
	for _, name := range names {
		if err := r.put(name, -1, strings.NewReader("of \x00 "+name)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if got, err := r.get(name); got != "of \x00 "+name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	entries, _, err := r.x.ListFiles(t.Context(), r.k, nil, "")
	if err != nil || len(entries) != len(names) {
		t.Errorf("%d entries, %v; want %d", len(entries), err, len(names))
	}
	for i := range 500 {
		if err := r.put(fmt.Sprintf("many/%d", i), 4, strings.NewReader("many")); err != nil {
			t.Fatal(err)
		}
	}
	if entries, more, err := r.x.ListFiles(t.Context(), r.k, nil, "many"); err != nil || len(entries) != 500 || more {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	if owner := r.sh("stat -c '%U %a' 'd e/p/th' many many/1; echo more >> many/1 && cat many/1"); owner != "agent 644\nagent 755\nagent 644\nmanymore\n" && !strings.HasSuffix(owner, "manymore\n") {
		t.Errorf("what was stored is not the agent's: %s", owner)
	}
}

// What does not fit is refused before it fills anything; what is interrupted is
// not seen; neither harms what comes after.
func TestFO56_FailuresLeaveNothing(t *testing.T) {
	r := newRoom(t, 8<<20)
	if err := r.put("ok", 2, strings.NewReader("ok")); err != nil {
		t.Fatal(err)
	}
	read := &pattern{n: 9 << 20}
	if err := r.put("big", 9<<20, read); sallyport.CodeOf(err) != sallyport.TooLarge || read.at != 0 {
		t.Errorf("over quota: %v, after %d bytes", err, read.at)
	}
	if err := r.put("big", -1, &pattern{n: 9 << 20}); sallyport.CodeOf(err) != sallyport.TooLarge {
		t.Errorf("over quota, size not told: %v", err)
	}
	broken := errors.New("the line was cut")
	if err := r.put("cut", 1<<20, io.MultiReader(&pattern{n: 300 << 10}, failing{broken})); !errors.Is(err, broken) {
		t.Errorf("interrupted: %v", err)
	}
	if err := r.put("short", 10, strings.NewReader("short")); err == nil {
		t.Error("fewer bytes than were told are a file")
	}
	if err := r.put("long", 2, strings.NewReader("longer")); sallyport.CodeOf(err) != sallyport.TooLarge {
		t.Errorf("more bytes than were told: %v", err)
	}
	for _, name := range []string{"", ".", "..", "a/", "/abs", "a//b", "./a", "a/../b", "../up", "nul\x00", "bad\xff", strings.Repeat("n", 256), strings.Repeat("d/", 40) + "f"} {
		if err := r.put(name, 1, strings.NewReader("x")); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := r.get(name); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("get %q: %v", name, err)
		}
	}
	if err := r.put("ok/file", 1, strings.NewReader("x")); sallyport.CodeOf(err) != sallyport.Invalid {
		t.Errorf("a file as a folder: %v", err)
	}
	if _, err := r.get("missing"); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("missing: %v", err)
	}
	if err := r.put("after", 5, strings.NewReader("after")); err != nil {
		t.Errorf("after all that: %v", err)
	}
	if got := r.sh("ls -A; cat after; df --output=used / | tail -1 >/dev/null; du -s . | cut -f1"); !strings.HasPrefix(got, "after\nok\nafter") {
		t.Errorf("seen inside: %q", got)
	}
	if got := r.sh("head -c 7M /dev/zero > most && echo fits"); got != "fits\n" {
		t.Errorf("space was lost: %q", got)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Links of every kind, and what is no file: nothing outside of the working
// folder is read or written, and nothing hangs.
func TestTO49_LinksAndOddFiles(t *testing.T) {
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("host canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRoom(t, 0)
	outside := "tmp/outside"
	r.sh(`echo outside > /tmp/outside; mkdir real d; echo inside > real/file
ln -s /tmp/outside abs; ln -s ../../../tmp/outside rel; ln -s abs chain; ln -s /tmp/new dangling; ln -s /tmp dir; ln -s .. up
ln -s /proc/self/root root; ln -s ` + canary + ` host; ln -s real/file good; ln -s real goodir; ln -s loop loop; ln -s /proc/1/environ env
mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'; ln real/file hard; ln -s /dev/zero zero; mkdir empty`)
	for name, want := range map[string]string{"good": "inside\n", "goodir/file": "inside\n", "hard": "inside\n", "real/file": "inside\n"} {
		if got, err := r.get(name); got != want {
			t.Errorf("control: %s: %q, %v", name, got, err)
		}
	}
	bad := []string{
		"abs", "rel", "chain", "dangling", "dir/outside", "up/" + outside, "root/" + outside, "root/etc/passwd", "host", "loop", "env",
		"fifo", "sock", "zero", "empty", "goodir", "%2e%2e/x", "..%2fx", "..\\x", "real/..\u2025/x", "FILE", "Real/file", "file.", "real/file ",
	}
	for _, name := range bad {
		began := time.Now()
		if got, err := r.get(name); err == nil || strings.Contains(got, "outside") || strings.Contains(got, "canary") {
			t.Errorf("get %s: %q, %v", name, got, err)
		}
		if d := time.Since(began); d > time.Minute {
			t.Errorf("get %s took %v", name, d)
		}
	}
	for _, name := range []string{"abs", "rel", "chain", "dangling", "good", "dir/outside", "dir/new", "up/new", "root/tmp/new", "host", "loop", "fifo", "sock", "empty", "zero"} {
		if err := r.put(name, 3, strings.NewReader("bad")); err == nil {
			t.Errorf("put %s worked", name)
		}
	}
	if err := r.put("goodir/new", 3, strings.NewReader("new")); err != nil {
		t.Errorf("control: beneath a folder that is a link to one inside: %v", err)
	}
	if err := r.put("hard", 3, strings.NewReader("new")); err != nil {
		t.Error(err)
	}
	if got := r.sh("cat /tmp/outside real/file hard; ls /tmp/new /home/agent/../new 2>/dev/null"); got != "outside\ninside\nnew" {
		t.Errorf("inside: %q", got)
	}
	if b, err := os.ReadFile(canary); string(b) != "host canary" {
		t.Errorf("the host's canary: %q, %v", b, err)
	}
	entries, _, err := r.x.ListFiles(t.Context(), r.k, nil, "")
	kinds := map[string]string{}
	for _, e := range entries {
		kinds[e.Name] = e.Kind
	}
	if err != nil || kinds["abs"] != "link" || kinds["fifo"] != "other" || kinds["sock"] != "other" || kinds["real"] != "folder" || kinds["hard"] != "file" {
		t.Errorf("%v, %v", kinds, err)
	}
	for _, dir := range []string{"dir", "up", "root", "../..", "/", "fifo", "abs"} {
		if _, _, err := r.x.ListFiles(t.Context(), r.k, nil, dir); err == nil {
			t.Errorf("list %s worked", dir)
		}
	}
}

// A program swaps a folder, a link and a file while files are moved: what is
// outside stays as it is, and is not read.
func TestTO49_SwapLoop(t *testing.T) {
	r := newRoom(t, 0)
	job := r.c
	job.Job = true
	job.Language, job.Code = "python", []byte(`
import os, threading
os.makedirs("/tmp/out", exist_ok=True)
open("/tmp/out/f", "w").write("outside")
os.makedirs("a", exist_ok=True)
open("a/f", "w").write("inside")
os.symlink("/tmp/out", "b")
os.symlink("/tmp/out/f", "l"); open("g", "w").write("inside")
print("ready", flush=True)
while True:
    os.rename("a", "t"); os.rename("b", "a"); os.rename("a", "b"); os.rename("t", "a")
    os.rename("g", "u"); os.rename("l", "g"); os.rename("g", "l"); os.rename("u", "g")
`)
	must(t, r.x, job)
	for st, deadline := (session.JobState{}), time.Now().Add(3*time.Minute); string(st.Output) != "ready\n"; {
		if st, _ = r.x.Job(t.Context(), r.k, 1, 0); time.Now().After(deadline) {
			t.Fatalf("%+v", st)
		}
	}
	good := 0
	for range 300 {
		for _, name := range []string{"a/f", "g"} {
			if got, err := r.get(name); err == nil && got != "inside" && got != "put" {
				t.Fatalf("%s: %q", name, got)
			} else if err == nil {
				good++
			}
			_ = r.put(name, 3, strings.NewReader("put")) // fails where it meets a link
		}
	}
	if got := r.sh("cat /tmp/out/f; ls -A /tmp/out"); got != "outsidef\n" || good == 0 {
		t.Errorf("outside: %q; %d reads met a file", got, good)
	}
}

// No archive is ever unpacked: one is a file like any other.
func TestTO50_ArchivesAreFiles(t *testing.T) {
	r := newRoom(t, 0)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "../up", Size: 1}, {Name: "/tmp/abs", Size: 1}, {Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/tmp"},
		{Name: "link/through", Size: 1}, {Name: "dev", Typeflag: tar.TypeChar}, {Name: "suid", Mode: 0o4755, Size: 1},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			w.Write([]byte("x")) //nolint:errcheck // a buffer
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	bomb := bytes.Repeat([]byte("PK\x03\x04"), 1000)
	for name, content := range map[string][]byte{"a.tar": b.Bytes(), "a.zip": bomb, "a.tar.gz": {0x1f, 0x8b, 8, 0}} {
		if err := r.put(name, int64(len(content)), bytes.NewReader(content)); err != nil {
			t.Error(err)
		}
		if got, err := r.get(name); err != nil || got != string(content) {
			t.Errorf("%s: %d bytes came back, %v", name, len(got), err)
		}
	}
	if got := r.sh("ls -A . ; ls -A /tmp /home"); got != "a.tar\na.tar.gz\na.zip\n/home:\nagent\n\n/tmp:\n" && !strings.HasPrefix(got, "a.tar\na.tar.gz\na.zip\n") {
		t.Errorf("something was unpacked: %q", got)
	}
}
