package gvisor_test

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
)

// A served is a service with our ends of its streams.
type served struct {
	*gvisor.Instance
	in  *os.File
	out *bufio.Reader
	err *os.File
}

const serviceUID = 64777

func serve(t *testing.T, h *gvisor.Host, v gvisor.Service) (*served, error) {
	t.Helper()
	v.Image, v.UID = "default", serviceUID
	if v.Limits == (sallyport.Limits{}) {
		v.Limits = sallyport.DefaultLimits()
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, _ := os.Pipe()
	errR, errW, _ := os.Pipe()
	v.Stdin, v.Stdout, v.Stderr = inR, outW, errW
	i, err := h.Serve(t.Context(), v)
	for _, f := range []*os.File{inR, outW, errW} {
		f.Close()
	}
	if err != nil {
		said, _ := io.ReadAll(errR)
		t.Logf("%s", said)
		return nil, err
	}
	s := &served{i, inW, bufio.NewReader(outR), errR}
	t.Cleanup(func() {
		i.Kill()
		<-i.Done()
		inW.Close()
		outR.Close()
		errR.Close()
	})
	return s, nil
}

func (s *served) line(t *testing.T) string {
	t.Helper()
	text, err := s.out.ReadString('\n')
	if err != nil {
		said, _ := io.ReadAll(s.err)
		t.Fatalf("the service ended: %v, %+v\n%s", err, s.Exit(), said)
	}
	return strings.TrimSuffix(text, "\n")
}

func TestServiceSpeaksAndSeesItsFoldersOnly(t *testing.T) {
	h := gvisortest.Open(t)
	readable, own := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(readable, "f"), []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(readable, 0o777); err != nil { // only the mount keeps it from being written
		t.Fatal(err)
	}
	if err := os.Chown(own, serviceUID, serviceUID); err != nil {
		t.Fatal(err)
	}
	const script = `
id -u; id -un; pwd
cat "$1/f"; echo
(echo x > "$1/g") 2>/dev/null && echo WRITES || echo read-only
echo kept > "$HOME/state" && echo writes
(echo x > /var/tmp/x) 2>/dev/null && echo WRITES || echo read-only
(mkdir /new) 2>/dev/null && echo WRITES || echo read-only
ls /mnt | wc -l
while read -r l; do echo "got $l"; done
echo bye; exit 7`
	s, err := serve(t, h, gvisor.Service{
		Request: tier.Request{Argv: []string{"bash", "-c", script, "bash", "/data/of/mine"}},
		Folders: []gvisor.Folder{{Inside: "/data/of/mine", Path: readable}, {Inside: tier.WorkDir, Path: own, Writable: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"64777", "server", tier.WorkDir, "of the host", "read-only", "writes", "read-only", "read-only", "0"} {
		if got := s.line(t); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	if _, err := s.in.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	if got := s.line(t); got != "got hello" {
		t.Fatalf("%q", got)
	}
	s.in.Close()
	if got := s.line(t); got != "bye" {
		t.Fatalf("%q", got)
	}
	if e := s.Exit(); e.Code != 7 || e.Signal != "" || e.OutOfMemory || e.Err != nil {
		t.Errorf("%+v", e)
	}
	if b, err := os.ReadFile(filepath.Join(own, "state")); err != nil || string(b) != "kept\n" {
		t.Errorf("%q %v", b, err)
	}
}

func TestServiceIsAskedToEndThenKilled(t *testing.T) {
	h := gvisortest.Open(t)
	s, err := serve(t, h, gvisor.Service{Request: tier.Request{Argv: []string{"bash", "-c", `trap 'echo asked' TERM; echo up; while :; do sleep 0.1; done`}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.line(t); got != "up" {
		t.Fatal(got)
	}
	s.Terminate()
	if got := s.line(t); got != "asked" {
		t.Fatal(got)
	}
	s.Kill()
	select {
	case <-s.Done():
	case <-time.After(await.Patience):
		t.Fatal("it does not end")
	}
	if e := s.Exit(); e.Signal != "SIGKILL" {
		t.Errorf("%+v", e)
	}
	if left := h.List(); len(left) != 0 {
		t.Errorf("%v", left)
	}
}

func TestServiceThatIsNotInTheImage(t *testing.T) {
	h := gvisortest.Open(t)
	_, err := serve(t, h, gvisor.Service{Request: tier.Request{Argv: []string{"/usr/local/bin/of-the-host"}}})
	if err == nil || !strings.Contains(err.Error(), "not in the sandbox image") {
		t.Fatal(err)
	}
}

func TestServiceOutOfMemory(t *testing.T) {
	h := gvisortest.Open(t)
	l := sallyport.DefaultLimits()
	l.Memory = 64 << 20
	s, err := serve(t, h, gvisor.Service{Request: tier.Request{Limits: l, Argv: []string{"python3", "-c", "print('up', flush=True)\nb = b'x' * (512 << 20)\nprint(len(b))"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.line(t); got != "up" {
		t.Fatal(got)
	}
	if e := s.Exit(); !e.OutOfMemory || e.Signal != "SIGKILL" {
		t.Errorf("%+v", e)
	}
}
