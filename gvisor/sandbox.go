package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/gpu"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/capture"
	"sallyport.dev/sallyport/tier/cgroup"
	"sallyport.dev/sallyport/tier/child"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/tier/talk"
)

var errBoot = errors.New("gVisor did not come up in time")

// A sandbox is one running gVisor sandbox.
type sandbox struct {
	id     string
	callID string // guarded by the host's mu
	began  time.Time
	argv0  string
	limits sallyport.Limits
	ctx    context.Context //nolint:containedctx // the sandbox's own life; ended by cancel
	cancel context.CancelCauseFunc

	dir    string
	group  cgroup.Group
	cmd    *exec.Cmd
	stdout *capture.Stream
	stderr *capture.Stream
	report <-chan payload.Record
	hits   *capture.Stream // bytes from the limits sink
	orders *os.File        // to process 1
	feed   *os.File        // to the program's stdin, nil if it is empty
	line   *os.File        // to the interpreter that was started ahead, nil if there is none
	talk   *talk.Line      // with whoever asked for the run, nil if nobody wants to
	next   []byte          // its order, where files come first
	refill func()          // called when its run has ended

	gpu      *gpu.GPU           // that it is shown, nil for none
	ca       tier.Authority     // that the sandbox trusts
	endWay   func() tier.Passed // ends the broker's service, nil if there is none
	denied   []string           // that the sandbox's own proxy refused
	mayOpen  bool               // it has a way out, open or not
	ahead    bool               // an interpreter is started ahead in it
	exits    bool               // its kernel tells when the program has ended
	waiting  bool               // warm, without a request; guarded by the host's mu
	ended    bool               // its run has; guarded by the host's mu
	starting bool               // see up; guarded by the host's mu
	started  bool
	held     held             // how it really is
	over     bool             // process 1 said that nothing of the run is left
	full     bool             // its disk was, at the end
	status   *unix.WaitStatus // of the program
	early    *unix.WaitStatus // the same, told before its start was
	failed   *tier.StartFailure
	output   tier.Artifacts
	end      error // why the run was stopped, nil if it ended by itself
	exit     error // of the runtime
}

// boot starts a sandbox that is to be told what to run.
func (h *Host) boot(ctx context.Context, platform string, image *os.File, r tier.Request) (*sandbox, error) {
	s := h.newSandbox(ctx, r)
	if r.GPU {
		found, err := h.findGPU(ctx)
		if err != nil {
			return nil, err
		}
		s.gpu = &found
	}
	return s, h.bring(s, r, func() error { return h.startRuntime(s, platform, image, len(r.Stdin) == 0) }, h.openWay)
}

func (h *Host) newSandbox(ctx context.Context, r tier.Request) *sandbox {
	s := &sandbox{id: newID(r.Limits), callID: r.CallID, began: time.Now(), limits: r.Limits}
	s.dir = filepath.Join(h.runsDir(), s.id)
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// bring makes what a sandbox lives in and starts it there, or leaves nothing.
func (h *Host) bring(s *sandbox, r tier.Request, start func() error, way func(*sandbox, tier.Request) error) error {
	if err := h.remember(s); err != nil {
		return err
	}
	if s.starting = h.starts.Enter(s.ctx.Done(), s.waiting); !s.starting {
		err := errors.Join(context.Cause(s.ctx), sallyport.ErrNotExecuted)
		h.forget(s)
		return err
	}
	err := os.Mkdir(s.dir, 0o700)
	if err == nil {
		err = way(s, r)
	}
	if err == nil {
		if s.group, err = h.dir.Groups.New(s.id, r.Limits.Memory+cgroup.KernelOverhead, r.Limits.CPUs); err == nil {
			if err = start(); err == nil {
				return nil
			}
			s.group.Remove() //nolint:errcheck // the first error is the one to tell
		}
	}
	s.closeWay()
	removeRun(s.dir) //nolint:errcheck // the first error is the one to tell
	h.forget(s)
	return tier.NotMade(err)
}

func (h *Host) remember(s *sandbox) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return tier.Unavailable("start it again", "the sandbox host is closed")
	}
	h.running[s.id] = s
	h.idle.Add(1)
	return nil
}

// up says that a sandbox has started, or never will: it is the next one's turn.
func (h *Host) up(s *sandbox) {
	h.mu.Lock()
	was := s.starting
	s.starting = false
	h.mu.Unlock()
	if was {
		h.starts.Leave()
	}
}

func (h *Host) forget(s *sandbox) {
	s.cancel(nil)
	h.up(s)
	h.mu.Lock()
	delete(h.running, s.id)
	h.mu.Unlock()
	h.idle.Done()
}

// startRuntime starts sallyport-runsc with its pipes. Both ends of each pipe
// are closed on every path: the child's here, ours by their readers, by tell,
// or by destroy.
func (h *Host) startRuntime(s *sandbox, platform string, image *os.File, noInput bool) (err error) {
	var p child.Pipes
	defer func() { p.Finish(err != nil) }()
	stdin, feed := p.ToChild(noInput)
	stdout, stdoutChild := p.FromChild()
	stderr, stderrChild := p.FromChild()
	orders, ordersIn := p.ToChild(false)
	report, reportChild := p.FromChild()
	hits, hitsChild := p.FromChild()
	pass := []string{fmt.Sprintf("--pass-fd=%d:3", fdPayload), fmt.Sprintf("--pass-fd=%d:4", fdReport)}
	var lineChild, line *os.File
	if s.ahead {
		lineChild, line = p.ToChild(false)
		pass = append(pass, fmt.Sprintf("--pass-fd=%d:%d", fdLine, payload.AheadLine))
	}
	if p.Err != nil {
		return p.Err
	}
	s.exits = true
	args := append([]string{"run", "--bundle=" + h.bundleOf(s), fmt.Sprintf("--exec-fd=%d", fdInit)}, pass...)
	s.cmd = h.runtime(s, platform, append(args, s.id)...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = stdin, stdoutChild, stderrChild
	s.cmd.ExtraFiles = []*os.File{h.init, orders, reportChild, image, hitsChild, lineChild}
	if err := h.spawn.Start(s.cmd); err != nil {
		return err
	}
	s.stdout, s.stderr = capture.Start(stdout, 0), capture.Start(stderr, 0)
	s.report = payload.Report(report, math.MaxInt)
	s.hits = capture.Start(hits, 4<<10)
	s.orders, s.feed, s.line = ordersIn, feed, line
	return nil
}

// runtime is a command of sallyport-runsc that concerns a sandbox, and runs in
// its cgroup.
func (h *Host) runtime(s *sandbox, platform string, args ...string) *exec.Cmd {
	all := []string{
		"--root=" + s.dir, "--platform=" + platform, "--network=none", "--ignore-cgroups", "--directfs=false",
		"--host-uds=" + s.hostSockets(), "--host-fifo=none", "--overlay2=none", "--pod-init-config=" + h.traceOf(s),
	}
	if s.gpu != nil {
		all = append(all, s.gpu.Flags()...)
	}
	cmd := exec.Command(filepath.Join(h.cfg.Programs, RuntimeProgram), append(all, args...)...)
	cmd.Env = []string{"SALLYPORT_CGROUPS=" + strings.Join(s.group.Dirs(), ":")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// tell hands a sandbox what to run, once.
func (s *sandbox) tell(r tier.Request, orders []byte) {
	s.expect(r)
	if r.Talk != nil { // kill closes the orders
		s.talk = r.Talk
		go s.talk.Feed(s.orders, orders)
	} else {
		send(s.orders, orders)
		s.orders = nil
	}
	s.input(r)
}

// expect prepares for what the program of a request says.
func (s *sandbox) expect(r tier.Request) {
	s.argv0, s.limits = r.Argv[0], r.Limits
	capture.Tell(s.stdout, s.stderr, r.Told)
	s.stdout.Max.Store(r.Limits.Output)
	s.stderr.Max.Store(r.Limits.Output)
}

func (s *sandbox) input(r tier.Request) {
	if s.feed != nil {
		send(s.feed, r.Stdin)
	}
	s.feed = nil
}

// send writes b and closes w, in the background if b does not fit into the pipe.
// A reader that goes away ends it.
func send(w *os.File, b []byte) {
	write := func() {
		defer w.Close()
		_, _ = w.Write(b)
	}
	if len(b) <= payload.MaxOrder {
		write()
		return
	}
	go write()
}

// conclude tells how a run ended whose sandbox still exists.
// Preconditions: s.over.
func (s *sandbox) conclude() (tier.Result, error) {
	for _, c := range []*capture.Stream{s.stdout, s.stderr, s.hits} {
		c.Settle()
	}
	return s.result(s.group.OOMKills() > 0)
}

// destroy kills whatever is left of the sandbox, drains its streams, deletes
// its traces and tells how the run ended.
func (h *Host) destroy(s *sandbox) (tier.Result, error) {
	if err := s.kill(); err != nil {
		return tier.Result{ID: s.id}, err
	}
	s.hearOut()
	res, err := s.result(s.group.OOMKills() > 0)
	h.bury(s)
	return res, err
}

// hearOut takes what was reported in between the decision and the kill. Whatever ended the
// run, a program that had started is not told of as one that had not.
func (s *sandbox) hearOut() {
	for rec := range s.report {
		switch {
		case s.status == nil && s.end == nil:
			s.note(rec)
		case rec.Kind == payload.Started:
			s.started = true
		}
	}
}

// kill ends every process of the sandbox and drains its streams.
func (s *sandbox) kill() error {
	for _, f := range []*os.File{s.orders, s.feed, s.line} {
		if f != nil {
			f.Close()
		}
	}
	// The runtime first: it may not have joined its cgroup yet. Once it is gone,
	// all that it ever started is in the cgroup.
	_ = s.cmd.Process.Kill()
	s.exit = s.cmd.Wait()
	err := s.group.Kill(killPatience)
	for _, c := range []*capture.Stream{s.stdout, s.stderr, s.hits} {
		if c == nil { // a box has no stdout
			continue
		}
		select {
		case <-c.Done:
		case <-time.After(killPatience):
			err = errors.Join(err, errors.New("a stream outlives its sandbox"))
		}
	}
	if err == nil {
		return nil
	}
	return &sallyport.Error{
		Code: sallyport.Internal, Step: sallyport.Execute, Message: "the sandbox could not be destroyed",
		Hint: "restart sallyport-sandboxd", Err: err,
	}
}

// remove deletes the traces of a dead sandbox. It may be repeated.
func (s *sandbox) remove() error { return errors.Join(s.group.Remove(), removeRun(s.dir)) }

// limitsHit names the limits that the run hit while it went on.
func (s *sandbox) limitsHit() []string {
	hit := namesOf(s.hits.Kept)
	if s.full && !slices.Contains(hit, tier.LimitDisk) {
		hit = append(hit, tier.LimitDisk)
	}
	if s.stdout.Truncated || s.stderr.Truncated {
		hit = append(hit, tier.LimitOutput)
	}
	return hit
}

// namesOf names what the limits sink told.
func namesOf(told []byte) (hit []string) {
	if bytes.IndexByte(told, 'p') >= 0 {
		hit = append(hit, tier.LimitProcesses)
	}
	if bytes.IndexByte(told, 'd') >= 0 {
		hit = append(hit, tier.LimitDisk)
	}
	return hit
}
