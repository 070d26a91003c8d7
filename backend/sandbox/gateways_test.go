package sandbox_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
	"sallyport.dev/sallyport/test/await"
)

// listen starts a host that several gateways use.
func (h host) listen(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(filepath.Dir(h.run), "host.sock")
	cmd := exec.CommandContext(t.Context(), h.program, append(h.args(), "-socket", socket)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // after its context
	await.That(t, "the host listens", func() bool { return answers(socket) })
	return socket
}

// answers tells whether somebody takes connections at a socket: its file is there
// a moment earlier.
func answers(socket string) bool {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

func dialAs(t *testing.T, socket, key string) *sandbox.Backend {
	t.Helper()
	b, err := sandbox.Dial(socket, sandbox.Options{Key: []byte(key)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func setIn(t *testing.T, b *sandbox.Backend, code string) string {
	t.Helper()
	j := codeJob(toolNamed(t, "run_python"), fmt.Sprintf(`{"code":%q,"session":"s"}`, code))
	j.Who = sallyport.Principal{Tenant: "default", ID: "agent"}
	s, err := ask(t, b, j)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(s.StructuredContent["stdout"])
}

func kept(t *testing.T, b *sandbox.Backend) int {
	t.Helper()
	h, err := b.Held(t.Context())
	if err != nil || h == nil {
		t.Fatalf("%v, %v", h, err)
	}
	if h.Most != 16 || h.MostOfOwner != 4 || h.Idle != 10*time.Minute || h.Rest != time.Minute || h.Life != 8*time.Hour {
		t.Errorf("bounds %+v", h)
	}
	return h.Kept
}

// Gateways on one host never meet, also where their agents have the same names. A
// gateway that starts again has its sessions; those of one that is gone end, and
// nobody else's do.
func TestTO51_SessionsOfGateways(t *testing.T) {
	t.Parallel() // it waits most of the time
	h := newHost(t)
	h.more = []string{"-gateway-grace", "8s"}
	socket := h.listen(t)
	one, two := dialAs(t, socket, "key of one"), dialAs(t, socket, "key of two")
	if got := setIn(t, one, "x = 1; print('x' in globals())"); got != "True\n" {
		t.Fatalf("%q", got)
	}
	if got := setIn(t, two, "print('x' in globals()); x = 2"); got != "False\n" {
		t.Errorf("another gateway is in the session: %q", got)
	}
	if n := kept(t, one); n != 2 {
		t.Fatalf("control: %d sessions", n)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	one = dialAs(t, socket, "key of one") // it starts again
	if got := setIn(t, one, "print(x)"); got != "1\n" {
		t.Errorf("after a restart: %q", got)
	}
	time.Sleep(10 * time.Second) // more than the grace
	if n := kept(t, two); n != 2 {
		t.Errorf("%d sessions, though both gateways are there", n)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	thief := dialAs(t, socket, "key of a thief")
	if got := setIn(t, thief, "print('x' in globals())"); got != "False\n" {
		t.Errorf("another gateway takes over: %q", got)
	}
	await.That(t, "the sessions of a gateway that is gone have ended", func() bool { return kept(t, two) == 2 }) // its own, and the thief's
	if got := setIn(t, two, "print(x)"); got != "2\n" {
		t.Errorf("another's session: %q", got)
	}
	await.That(t, "its sandbox is gone", func() bool { list, _, err := two.List(t.Context()); return err == nil && len(list) == 2 })
}

// A message that is small on the wire and large when it is unpacked is refused by
// the host, which has not unpacked it.
func TestTO57_CompressedMessages(t *testing.T) {
	h := newHost(t)
	socket := h.listen(t)
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	api := sandboxpb.NewSandboxesClient(conn)
	request := func(size int) *sandboxpb.RunRequest {
		return &sandboxpb.RunRequest{Tier: "gvisor", Image: "default", Argv: []string{"wc", "-c"}, Stdin: make([]byte, size), Limits: &sandboxpb.Limits{TimeoutMs: 60_000, MemoryBytes: 256 << 20, Processes: 64, DiskBytes: 16 << 20, OutputBytes: 1 << 20, Cpus: 1}}
	}
	for _, size := range []int{100, 3 * sandboxpb.MaxMessage} {
		if r, err := api.Run(t.Context(), request(size), grpc.UseCompressor(gzip.Name)); err == nil {
			t.Errorf("%d bytes, packed: %+v", size, r)
		} else {
			t.Log(err)
		}
	}
	if r, err := api.Run(t.Context(), request(100)); err != nil || string(r.Stdout) != "100\n" {
		t.Errorf("control: %+v, %v", r, err)
	}
}
