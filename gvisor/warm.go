package gvisor

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/payload"
)

// A warm sandbox has booted and, for scripts, started their interpreter; it
// waits for one request of its kind, runs it and is destroyed like any other.
// What a request may ask for that shapes a sandbox is in the kind, so that a
// warm one is never weaker, or other, than a cold one: the image, the limits,
// and that it reaches nothing and is given no variables of its own (but Unbuffered).

// The programs below make an interpreter that was started ahead behave as if
// it had been started with the script.
var (
	//go:embed ahead.py
	aheadPython string
	//go:embed ahead.js
	aheadNode string
)

// aheadFile is the file that Node.js starts from; it deletes it.
const aheadFile = ".ahead.js"

// interpreter names what can be started ahead of a program: of two words, the
// interpreter and a script. It is "" for all else, which needs nothing but its
// sandbox.
func interpreter(argv []string) string {
	if len(argv) == 2 && argv[1] != "" && argv[1][0] != '-' && (argv[0] == "python3" || argv[0] == "node") {
		return argv[0]
	}
	return ""
}

// ahead starts an interpreter that waits.
func ahead(program string) (r Request) {
	switch program {
	case "python3":
		// A namespace of its own: __main__ is to be the script's alone.
		r.Argv = []string{"python3", "-c", fmt.Sprintf("exec(compile(%q, '<start>', 'exec'), {'__name__': '<start>'})", aheadPython)}
	case "node":
		r.Argv = []string{"node", aheadFile}
		r.Files = []File{{Path: aheadFile, Content: []byte(aheadNode)}}
	}
	return r
}

// Unbuffered has Python write lines as they are printed: the one variable that a
// warm sandbox can be given.
const Unbuffered = "PYTHONUNBUFFERED=1"

// A warmKey is a kind of sandbox.
type warmKey struct {
	image, platform, program string // of program, see interpreter
	memory, disk             int64
	processes                int
	cpus                     float64
}

func warmKeyOf(digest, platform string, r Request) (warmKey, bool) {
	if len(r.Env) > 1 || len(r.Env) == 1 && r.Env[0] != Unbuffered || len(r.Way.Reach) > 0 {
		return warmKey{}, false
	}
	l := r.Limits
	return warmKey{digest, platform, interpreter(r.Argv), l.Memory, l.Disk, l.Processes, l.CPUs}, true
}

// request is one that a sandbox of the kind could be given.
func (k warmKey) request() Request {
	return Request{Stdin: []byte{0}, Limits: sallyport.Limits{
		Memory: k.memory, Disk: k.disk, Processes: k.processes, CPUs: k.cpus,
	}}
}

// hatch starts a sandbox of a kind and waits until it is ready.
func (h *Host) hatch(k warmKey) (*sandbox, error) {
	image, digest, err := h.findImage(k.image)
	if err != nil {
		return nil, err
	}
	if digest != k.image {
		return nil, errors.New("the image has changed")
	}
	s, err := h.boot(context.Background(), k.platform, image, k.request(), true)
	if err != nil {
		return nil, err
	}
	s.held = held{platform: k.platform, image: digest, runtime: h.version, warm: true}
	if err := s.getReady(k); err != nil {
		return nil, errors.Join(err, h.discard(s))
	}
	return s, nil
}

// getReady has process 1 start the interpreter, and waits for it.
func (s *sandbox) getReady(k warmKey) error {
	b := ahead(k.program).appendProgram(k.request().appendSandbox(nil), nil)
	if _, err := s.orders.Write(payload.Append(b, payload.Ahead, nil)); err != nil {
		return err
	}
	late := time.NewTimer(bootPatience)
	defer late.Stop()
	select {
	case rec, open := <-s.report:
		if !open || rec.kind != payload.Ready {
			return fmt.Errorf("it ended before it was ready: %q", rec.data)
		}
		return nil
	case <-late.C:
		return errBoot
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// alive tells whether a waiting sandbox still waits: it has nothing to report.
func (s *sandbox) alive() bool {
	select {
	case <-s.report:
		return false
	case <-s.ctx.Done():
		return false
	default:
		return true
	}
}

// adopt gives a warm sandbox its one request.
func (h *Host) adopt(ctx context.Context, s *sandbox, r Request) {
	h.mu.Lock()
	s.callID, s.began, s.waiting = r.CallID, time.Now(), false
	h.mu.Unlock()
	context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) }) // after the run's end it does nothing
	s.tell(r, r.appendWork(nil, nil))
}

// discard destroys a sandbox in which nothing runs (any more).
func (h *Host) discard(s *sandbox) error {
	defer h.forget(s)
	s.cancel(errClosed)
	if err := s.kill(); err != nil {
		return err
	}
	h.bury(s)
	return nil
}

func logDiscard(err error) {
	if err != nil {
		slog.Error("a warm sandbox could not be destroyed", "err", err)
	}
}
