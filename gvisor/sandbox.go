package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/cgroup"
	"sallyport.dev/sallyport/gvisor/payload"
)

var errBoot = errors.New("gVisor did not come up in time")

// A sandbox is one running gVisor sandbox.
type sandbox struct {
	id     string
	callID string
	began  time.Time
	argv0  string
	limits sallyport.Limits
	ctx    context.Context //nolint:containedctx // the sandbox's own life; ended by cancel
	cancel context.CancelCauseFunc

	dir    string
	group  cgroup.Group
	cmd    *exec.Cmd
	stdout *capture
	stderr *capture
	report <-chan record
	hits   *os.File // bytes from the limits sink

	started bool
	status  *unix.WaitStatus // of the program
	failed  *startFailure
	end     error // why the run was stopped, nil if it ended by itself
	exit    error // of the runtime
}

type record struct {
	kind payload.Kind
	data []byte
}

type startFailure struct {
	errno unix.Errno
	what  string
}

func isProgram(what, argv0 string) bool { return strings.HasPrefix(what, argv0+": ") }

// boot starts a sandbox and hands it the request.
func (h *Host) boot(ctx context.Context, platform string, image *os.File, r Request) (*sandbox, error) {
	s := &sandbox{id: newID(r.Limits.Memory), callID: r.CallID, began: time.Now(), argv0: r.Argv[0], limits: r.Limits}
	s.dir = filepath.Join(h.runsDir(), s.id)
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	if err := h.remember(s); err != nil {
		return nil, err
	}
	err := os.Mkdir(s.dir, 0o700)
	if err == nil {
		if s.group, err = h.groups.New(s.id, r.Limits.Memory+cgroup.KernelOverhead, r.Limits.CPUs); err == nil {
			if err = h.startRuntime(s, platform, image, r); err == nil {
				return s, nil
			}
			s.group.Remove() //nolint:errcheck // the first error is the one to tell
		}
		os.RemoveAll(s.dir)
	}
	h.forget(s)
	return nil, &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Message: "the sandbox could not be made",
		Hint: "see `sallyport doctor`", Err: errors.Join(sallyport.ErrNotExecuted, err),
	}
}

func (h *Host) remember(s *sandbox) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return unavailable("start it again", "the sandbox host is closed")
	}
	h.running[s.id] = s
	h.idle.Add(1)
	return nil
}

func (h *Host) forget(s *sandbox) {
	s.cancel(nil)
	h.mu.Lock()
	delete(h.running, s.id)
	h.mu.Unlock()
	h.idle.Done()
}

// startRuntime starts sallyport-runsc with its pipes. Both ends of each pipe
// are closed on every path: the child's here, ours by their readers.
func (h *Host) startRuntime(s *sandbox, platform string, image *os.File, r Request) (err error) {
	var p pipes
	defer func() { p.finish(err != nil) }()
	stdin, feed := p.toChild(len(r.Stdin) == 0)
	stdout, stdoutChild := p.fromChild()
	stderr, stderrChild := p.fromChild()
	orders, ordersIn := p.toChild(false)
	report, reportChild := p.fromChild()
	hits, hitsChild := p.fromChild()
	if p.err != nil {
		return p.err
	}
	s.cmd = exec.Command(filepath.Join(h.cfg.Programs, RuntimeProgram),
		"--root="+s.dir, "--platform="+platform, "--network=none", "--ignore-cgroups", "--directfs=false",
		"--host-uds=none", "--host-fifo=none", "--overlay2=none", "--pod-init-config="+h.traceFile(),
		"run", "--bundle="+h.bundle(), fmt.Sprintf("--exec-fd=%d", fdInit),
		fmt.Sprintf("--pass-fd=%d:3", fdPayload), fmt.Sprintf("--pass-fd=%d:4", fdReport), s.id)
	s.cmd.Env = []string{"SALLYPORT_CGROUPS=" + strings.Join(s.group.Dirs(), ":")}
	s.cmd.Dir = "/"
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = stdin, stdoutChild, stderrChild
	s.cmd.ExtraFiles = []*os.File{h.init, orders, reportChild, image, hitsChild}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := h.spawn.start(s.cmd); err != nil {
		return err
	}
	s.stdout, s.stderr = captureStream(stdout, r.Limits.Output), captureStream(stderr, r.Limits.Output)
	s.report = readReport(report)
	s.hits = hits
	send(ordersIn, r.encode())
	if feed != nil {
		send(feed, r.Stdin)
	}
	return nil
}

// send writes b and closes w, in the background. A reader that goes away ends it.
func send(w *os.File, b []byte) {
	go func() {
		defer w.Close()
		_, _ = w.Write(b)
	}()
}

// readReport decodes the records of process 1 until the pipe ends.
func readReport(r *os.File) <-chan record {
	out := make(chan record, 8) // more than init ever sends: never blocks
	go func() {
		defer close(out)
		defer r.Close()
		for range cap(out) {
			var head [payload.HeaderSize]byte
			if _, err := io.ReadFull(r, head[:]); err != nil {
				return
			}
			k, n, err := payload.Header(head[:])
			if err != nil || n > 4096 {
				return
			}
			data := make([]byte, n)
			if _, err := io.ReadFull(r, data); err != nil {
				return
			}
			out <- record{k, data}
		}
	}()
	return out
}

// destroy kills whatever is left of the sandbox, drains its streams, deletes
// its traces and tells how the run ended. What cannot be deleted is logged and
// left to the next start's reaper.
func (s *sandbox) destroy() (Result, error) {
	// The runtime first: it may not have joined its cgroup yet. Once it is gone,
	// all that it ever started is in the cgroup.
	_ = s.cmd.Process.Kill()
	s.exit = s.cmd.Wait()
	killErr := s.group.Kill(killPatience)
	oom := s.group.OOMKills() > 0
	for _, c := range []*capture{s.stdout, s.stderr} {
		select {
		case <-c.done:
		case <-time.After(killPatience):
			killErr = errors.Join(killErr, errors.New("a stream outlives its sandbox"))
		}
	}
	if killErr != nil {
		s.hits.Close()
		return Result{ID: s.id}, &sallyport.Error{
			Code: sallyport.Internal, Step: sallyport.Execute, Message: "the sandbox could not be destroyed",
			Hint: "restart sallyport-sandboxd", Err: killErr,
		}
	}
	for rec := range s.report { // what came in between the decision and the kill
		if s.status == nil && s.end == nil {
			s.note(rec)
		}
	}
	res, err := s.result(oom)
	if rmErr := errors.Join(s.group.Remove(), os.RemoveAll(s.dir)); rmErr != nil {
		logLeftover(s.id, rmErr)
	}
	return res, err
}

// limitsHit names the limits that the run hit while it went on.
func (s *sandbox) limitsHit() []string {
	defer s.hits.Close()
	b, _ := io.ReadAll(io.LimitReader(s.hits, 16))
	var hit []string
	if strings.ContainsRune(string(b), 'p') {
		hit = append(hit, LimitProcesses)
	}
	if strings.ContainsRune(string(b), 'd') {
		hit = append(hit, LimitDisk)
	}
	if s.stdout.truncated || s.stderr.truncated {
		hit = append(hit, LimitOutput)
	}
	return hit
}
