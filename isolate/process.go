package isolate

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/cage"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/capture"
)

const (
	startPatience = time.Minute      // until a process answers, on a machine with much to do
	pingPatience  = time.Second      // until one that served a call answers again
	endPatience   = 10 * time.Second // until one that breaks off a call has ended, and its status tells why

	// overhead is what workerd itself takes of memory (measured: 30 MB before the first
	// call, of which its file is no part).
	overhead = 64 << 20
	// reserve is what it takes of private writable memory that it never touches
	// (measured: it does not start with less than 500 MB).
	reserve = 768 << 20

	maxHeap = 2 << 30 // of V8, whatever the limit: beyond it, memory is a program's in array buffers
	threads = 64
	files   = 512       // descriptors: a fetch that waits for its turn holds one
	maxHead = 256 << 10 // of what host.js says of a call
)

//go:embed host.js
var hostModule string

//go:embed guest.js
var guestModule string

//go:embed config.capnp
var configText string

// A kind is what processes have in common that can serve the same calls.
type kind struct {
	memory int64
	cpus   float64
	way    bool // may have a way out
}

// A process is one workerd in its cage.
type process struct {
	h      *Host
	kind   kind
	dir    string // of its own, which it sees: configuration, the socket of its calls, and that of its way out
	child  *cage.Child
	tap    *tap
	stderr *capture.Stream
	held   held

	// Owned by whoever took it.
	calls int    // served
	last  []byte // what the isolate of the last call was made of
	ahead *ahead // an isolate for the next one, nil if there is none

	since time.Time // that it waits; guarded by the shelf's mu

	once sync.Once
}

// makeRoot makes the folder that is the root of every process: workerd's
// libraries, and its configuration.
func (h *Host) makeRoot() error {
	root := h.rootDir()
	if err := os.RemoveAll(filepath.Join(h.house.Dir(), "process")); err != nil { // of an earlier Host
		return err
	}
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	for _, dir := range []string{root, filepath.Join(root, "way"), filepath.Join(root, "dev"), filepath.Join(h.house.Dir(), "process")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := copyLibraries(h.program, root); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(root, "dev", "urandom"), nil, 0o644), // see cage.Spec
		os.WriteFile(filepath.Join(root, "host.js"), []byte(hostModule), 0o644),
		os.WriteFile(filepath.Join(root, "guest.js"), []byte(guestModule), 0o644),
	)
}

// writeConfig writes the configuration of a process into its own folder.
func (p *process) writeConfig() error {
	heap := strconv.FormatInt(min(p.kind.memory, maxHeap)>>20, 10)
	return os.WriteFile(filepath.Join(p.dir, "config.capnp"), []byte(strings.Replace(configText, "HEAP", heap, 1)), 0o644)
}

// start starts a process and waits until it serves.
func (h *Host) start(k kind) (_ *process, err error) {
	p := &process{h: h, kind: k}
	if !h.enter() {
		return nil, tier.ErrClosed
	}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	if p.dir, err = os.MkdirTemp(filepath.Join(h.house.Dir(), "process"), ""); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chmod(p.dir, 0o755), p.writeConfig()); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.socket(), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = p.launch(l)
	l.Close() // so that a process that has ended is not waited for
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	if err := p.ping(ctx); err != nil {
		return nil, fmt.Errorf("workerd did not come up: %w: %s", err, p.lastWords())
	}
	p.held, err = readHeld(p.child)
	return p, err
}

// socket is where the process takes calls. Only root comes there.
func (p *process) socket() string { return filepath.Join(p.dir, "calls") }

// launch starts workerd with the listening socket as descriptor 3.
func (p *process) launch(l *net.UnixListener) error {
	listening, err := l.File()
	if err != nil {
		return err
	}
	defer listening.Close()
	out, outChild, err := os.Pipe()
	if err != nil {
		return err
	}
	defer outChild.Close()
	log, logChild, err := os.Pipe()
	if err != nil {
		out.Close()
		return err
	}
	defer logChild.Close()
	s := cage.Spec{
		Program: p.h.program, Args: []string{"workerd", "serve", "--experimental", "/way/config.capnp", "--socket-fd", "calls=3"},
		Root: p.h.rootDir(), Places: []cage.Place{{From: p.dir, To: "/way"}}, Random: true, Stdout: outChild, Stderr: logChild, Files: []*os.File{listening},
		Memory: p.kind.memory + overhead, CPUs: p.kind.cpus, Data: p.kind.memory + p.kind.memory/2 + reserve, Threads: threads, Open: files, Connect: p.kind.way,
	}
	if p.child, err = p.h.house.Start(s); err != nil {
		out.Close()
		log.Close()
		return err
	}
	p.tap, p.stderr = newTap(out), capture.Start(log, 8<<10)
	return nil
}

var errGone = errors.New("the connection to the process has ended")

// ping asks the process whether it serves.
func (p *process) ping(ctx context.Context) error {
	_, err := p.ask(ctx, http.MethodGet, "", 0)
	return err
}

// ask sends one request and returns the answer. workerd ends connections that wait,
// so each has one of its own.
func (p *process) ask(ctx context.Context, method, end string, max int64, body ...[]byte) ([]byte, error) {
	conn, err := net.Dial("unix", p.socket())
	if err != nil {
		return nil, errors.Join(errGone, err)
	}
	size := 0
	for _, b := range body {
		size += len(b)
	}
	head := fmt.Appendf(nil, "%s / HTTP/1.1\r\nHost: host\r\nConnection: close\r\nend: %s\r\nContent-Length: %d\r\n\r\n", method, end, size)
	return answered(ctx, conn, max, append(net.Buffers{head}, body...))
}

// answered sends what is left of a request and returns the answer, of which it keeps
// what a head takes, and max bytes and one more. After an error the process is of no
// use any more.
func answered(ctx context.Context, conn net.Conn, max int64, rest net.Buffers) ([]byte, error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := rest.WriteTo(conn); err != nil {
		return nil, errors.Join(errGone, err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, errors.Join(errGone, err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxHead+max+1))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("the process answered %s", answer.Status)
	}
	return b, err
}

// alive is whether the process can still be taken.
func (p *process) alive() bool {
	select {
	case <-p.child.Ended():
		return false
	default:
		return true
	}
}

// end ends the process and removes what it had, in the background. It is
// idempotent.
func (p *process) end() {
	p.once.Do(func() {
		p.drop()
		if p.child == nil {
			p.remove()
			return
		}
		p.child.Kill()
		go func() {
			p.child.Wait()
			p.remove()
		}()
	})
}

func (p *process) remove() {
	defer p.h.idle.Done()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir) // sockets; the next Host removes what is left
	}
}

// memoryWords are how workerd and V8 say that they end for want of memory.
var memoryWords = regexp.MustCompile(`(?i)out of memory|heap limit|bad_alloc|OOM|Cannot allocate memory|allocation failed|invalid size error`)

// starved is whether an ended process ended for want of memory, by evidence: the
// kernel's count, or its last words.
func (p *process) starved() bool {
	return p.child.Wait().OOM || memoryWords.MatchString(p.lastWords())
}

// lastWords is what workerd itself said. It is not for whoever made the call: there
// are addresses in it.
func (p *process) lastWords() string {
	if p.child == nil {
		return ""
	}
	p.child.Kill()
	p.child.Wait()
	<-p.stderr.Done
	return string(p.stderr.Kept)
}

// enter counts a process in, unless the host is closed.
func (h *Host) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.idle.Add(1)
	}
	return !h.closed
}

// resident is how much memory the process holds now, but for its file.
func (p *process) resident() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.child.PID))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 3 {
		return 0
	}
	all, _ := strconv.ParseInt(f[1], 10, 64)
	shared, _ := strconv.ParseInt(f[2], 10, 64)
	return (all - shared) * int64(unix.Getpagesize())
}
