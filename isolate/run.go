package isolate

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
)

// exitKilled and its signal are what a run is told to have ended with that was killed.
const (
	exitKilled  = 128 + 9
	exitWaiting = 13 // as Node.js ends where a program waits for what never comes
)

// A call is one run.
type call struct {
	h       *Host
	id      string
	request tier.Request
	began   time.Time
	ctx     context.Context //nolint:containedctx // the call's own life; ended by stop
	stop    context.CancelCauseFunc
	p       *process
	warm    bool
	out     *outlet
	endWay  func() tier.Passed // nil if there is no way out
}

// An answer is what host.js says of a call.
type answer struct {
	Exit  *int   `json:"exit"`  // that it ended with; what it returned follows the answer
	Idle  bool   `json:"idle"`  // all that the program began has ended, or waits for what never comes
	Error string `json:"error"` // it could not be loaded, or threw where nothing catches
}

// Run runs one module to its end, in an isolate of its own. When Run returns,
// nothing of it runs. A module that fails is a Result, not an error; an error that
// wraps sallyport.ErrNotExecuted means that it never started. When ctx ends, the
// process is killed and ctx.Err() returned.
func (h *Host) Run(ctx context.Context, r tier.Request) (tier.Result, error) {
	if err := check(r); err != nil {
		return tier.Result{}, err
	}
	release, err := h.places.Take(ctx)
	if err != nil {
		return tier.Result{}, err
	}
	defer release()
	c := &call{h: h, id: "iso-" + random(), request: r, began: time.Now()}
	c.ctx, c.stop = context.WithCancelCause(ctx)
	defer c.stop(nil)
	if !h.remember(c) {
		return tier.Result{}, tier.Unavailable("start it again", "the sandbox host is closed")
	}
	defer h.forget(c)
	c.out = &outlet{word: random(), end: random(), max: r.Limits.Output, told: r.Told, exit: -1, over: make(chan struct{})}
	source, input, err := encode(r, c.out.word)
	if err != nil {
		return tier.Result{}, err
	}
	again, err := c.find()
	if err != nil {
		return tier.Result{}, notMade(ctx, err)
	}
	defer again()
	if err := c.openWay(); err != nil {
		c.p.end()
		return tier.Result{}, notMade(ctx, err)
	}
	res, err := c.run(source, input)
	res.Duration = time.Since(c.began)
	return res, err
}

func random() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// notMade is why a call has no process.
func notMade(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), sallyport.ErrNotExecuted)
	}
	if _, ours := errors.AsType[*sallyport.Error](err); !ours {
		slog.Error("an isolate could not be made", "err", err)
	}
	return tier.NotMade(err)
}

func (h *Host) remember(c *call) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.running[c.id] = c
	h.idle.Add(1)
	return true
}

func (h *Host) forget(c *call) {
	h.mu.Lock()
	delete(h.running, c.id)
	h.mu.Unlock()
	h.idle.Done()
}

// find finds a process for the call: one that served its owner, a fresh one that
// waits, or one that is started now. again is called when the call has its result.
func (c *call) find() (again func(), err error) {
	r := c.request
	k := kind{memory: r.Limits.Memory, cpus: r.Limits.CPUs, way: len(r.Way.Reach) > 0}
	if !k.way {
		if c.p = c.h.shelf.take(seat{r.Owner, k}); c.p != nil {
			c.warm = true
			return func() {}, nil
		}
	}
	if c.p, c.warm = c.h.fresh.Take(k); !c.warm {
		if c.p, err = c.h.start(k); err != nil {
			return nil, err
		}
	}
	return c.h.fresh.Later(k), nil
}

// openWay opens the way out, if the call is to have one. A process that had one
// serves no other call.
func (c *call) openWay() error {
	w := c.request.Way
	if len(w.Reach) == 0 {
		return nil
	}
	at := tier.Socket{Path: filepath.Join(c.p.dir, "s"), Mode: 0o666} // the folder is root's, the process has a uid of its own
	_, end, err := w.Serve(c.h.cfg.Broker, at, c.id, tier.Authority{}, c.request.Limits.Timeout+startPatience)
	c.endWay = end
	return err
}

// run has the process run the module, and tells how that ended.
func (c *call) run(source, input []byte) (tier.Result, error) {
	late := time.AfterFunc(c.request.Limits.Timeout, func() { c.stop(tier.ErrTimeout) })
	defer late.Stop()
	b, err := c.ask(source, input)
	var said answer
	head, returned, _ := bytes.Cut(b, []byte("\n"))
	if err == nil {
		if err = json.Unmarshal(head, &said); err == nil {
			err = c.settle()
		}
	}
	if err != nil {
		return c.broken(err)
	}
	c.out.write(0, returned)
	res := c.result("exited")
	switch {
	case said.Exit != nil:
		res.ExitCode = *said.Exit & 255
	case said.Error != "":
		res.ExitCode = 1
		res.Stderr = c.add(res.Stderr, said.Error+"\n")
	case c.out.exit >= 0:
		res.ExitCode = c.out.exit
	case said.Idle:
		res.ExitCode = exitWaiting
		res.Stderr = c.add(res.Stderr, "Warning: the program waits for what never comes\n")
	default:
		res.ExitCode = 1
		res.Stderr = c.add(res.Stderr, "the program ended without a word\n")
	}
	c.letGo(source)
	return res, nil
}

// ask has the process run the module, in the isolate that was made ahead if there is
// one, and returns its answer.
func (c *call) ask(source, input []byte) ([]byte, error) {
	if a := c.p.waiting(source); a != nil {
		c.out.end = a.end
		c.p.tap.serve(c.out)
		return answered(c.ctx, a.conn, c.out.max, a.rest(input))
	}
	c.p.tap.serve(c.out)
	return c.p.ask(c.ctx, http.MethodPost, c.out.end, c.out.max, source, input)
}

// settle waits until everything is read that was printed before the end.
func (c *call) settle() error {
	select {
	case <-c.out.over:
		return nil
	case <-c.p.tap.dry:
		return errGone
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

// broken tells of a call whose process did not answer: it was killed, or ended by
// itself.
func (c *call) broken(err error) (tier.Result, error) {
	cause := context.Cause(c.ctx)
	if cause == nil { // it ends by itself: how tells why
		select {
		case <-c.p.child.Ended():
		case <-time.After(endPatience):
		}
	}
	c.p.child.Kill()
	exit := c.p.child.Wait()
	<-c.p.tap.dry
	starved := cause == nil && c.p.starved()
	c.p.end()
	res := c.result("failed")
	res.PeakMemory = exit.Peak
	switch {
	case starved, cause != nil && exit.OOM:
		res.KilledBy = tier.KilledByMemory
	case errors.Is(cause, tier.ErrTimeout):
		res.KilledBy = tier.KilledByTimeout
	case errors.Is(cause, tier.ErrStopped):
		res.KilledBy = tier.KilledByCaller
	case errors.Is(cause, tier.ErrKilled), errors.Is(cause, tier.ErrClosed):
		return res, tier.Broken(cause, true)
	case cause != nil:
		return tier.Result{}, cause
	case exit.Status.Signaled() && exit.Status.Signal() != unix.SIGKILL: // what the program did to its runtime
		slog.Warn("an isolate's process crashed", "sandbox", c.id, "status", exit.Status, "stderr", c.p.lastWords())
		res.ExitCode, res.Signal, res.Receipt.Exit = 128+int(exit.Status.Signal()), tier.SignalName(exit.Status.Signal()), "signaled"
		return res, nil
	default:
		slog.Error("an isolate's process failed", "sandbox", c.id, "err", err, "status", exit.Status, "stderr", c.p.lastWords())
		return res, tier.Broken(err, true)
	}
	res.ExitCode, res.Signal, res.Receipt.Exit = exitKilled, "SIGKILL", string(res.KilledBy)
	if res.KilledBy == tier.KilledByCaller {
		res.Receipt.Exit = "signaled"
	}
	return res, nil
}

// result is what is known however the call ended.
// Preconditions: nobody writes to the outlet any more.
func (c *call) result(exit string) tier.Result {
	var passed tier.Passed
	if c.endWay != nil {
		passed = c.endWay()
	}
	res := tier.Result{
		ID: c.id, Stdout: c.out.kept[0], Stderr: c.out.kept[1], Truncated: c.out.truncated,
		Connections: append(passed.Connections, c.out.denied...), PeakMemory: c.p.child.Group().Peak(), Receipt: c.receipt(exit, passed.Egress),
	}
	if c.out.truncated {
		res.LimitsHit = []string{tier.LimitOutput}
	}
	return res
}

// add appends what the tier says to what the program wrote, as far as it fits.
func (c *call) add(b []byte, text string) []byte {
	return append(b, text[:min(int64(len(text)), max(0, c.out.max-int64(len(b))))]...)
}

// letGo keeps the process for its owner's next call, or ends it. Keeping comes
// after a look at whether it still serves: nothing of the call may run on.
func (c *call) letGo(source []byte) {
	p, r := c.p, c.request
	p.calls++
	if r.Owner == "" || p.kind.way || p.calls >= maxCalls || p.resident() > p.kind.memory/2+overhead {
		p.end()
		return
	}
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if c.h.closed {
		p.end()
		return
	}
	c.h.idle.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), c.h.again)
		defer cancel()
		if errors.Join(p.ping(ctx), p.prepare(source, c.out.printed)) != nil {
			p.end()
			return
		}
		c.h.shelf.put(seat{r.Owner, p.kind}, p)
	})
}
