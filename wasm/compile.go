package wasm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cage"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/capture"
	"sallyport.dev/sallyport/tier/child"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/wasm/guest"
)

// Bounds of compiling, which is the host's own work: the limits of a run do not
// pay for it.
const (
	maxCode         = 512 << 20
	compileMemory   = 1 << 30
	compileCPU      = time.Minute
	compilePatience = 5 * time.Minute // on a machine that has much else to do
)

// A making is a module that is being compiled.
type making struct {
	done chan struct{}
	err  error // valid once done is closed
}

// entry opens a module's entry, compiling the module first where need be. code is
// empty where it must have been.
func (h *Host) entry(ctx context.Context, digest string, code []byte) (*os.File, int64, error) {
	f, size, err := h.store.open(digest)
	switch {
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return f, size, err
	case len(code) == 0:
		return nil, 0, &sallyport.Error{
			Code: sallyport.NotFound, Step: sallyport.Execute, Message: "this host does not have the module",
			Hint: "send it whole", Err: sallyport.ErrNotExecuted,
		}
	}
	m, err := h.making(digest, code)
	if err != nil {
		return nil, 0, err
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		return nil, 0, errors.Join(context.Cause(ctx), sallyport.ErrNotExecuted)
	}
	if m.err != nil {
		return nil, 0, m.err
	}
	return h.store.open(digest)
}

// making is the one that makes a module's entry, started where there is none. It
// goes on for others when whoever asked first has gone.
func (h *Host) making(digest string, code []byte) (*making, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, tier.Unavailable("start it again", "the sandbox host is closed")
	}
	if m := h.pending[digest]; m != nil {
		return m, nil
	}
	m := &making{done: make(chan struct{})}
	h.pending[digest] = m
	h.idle.Go(func() {
		defer close(m.done)
		m.err = h.compile(digest, code)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.pending, digest)
	})
	return m, nil
}

// compile has a child compile a module, and stores what it makes of it.
func (h *Host) compile(digest string, code []byte) error {
	ctx, cancel := context.WithTimeoutCause(h.life, compilePatience, tier.ErrTimeout)
	defer cancel()
	select {
	case h.compiling <- struct{}{}:
		defer func() { <-h.compiling }()
	case <-ctx.Done():
		return tier.Unavailable("try again", "too many modules are being compiled")
	}
	c, err := h.startCompiler(code)
	if err != nil {
		return tier.NotMade(err)
	}
	stop := context.AfterFunc(ctx, c.child.Kill)
	defer stop()
	key, machine, failed := c.collect()
	c.child.Kill()
	exited := c.child.Wait()
	c.stderr.Settle()
	switch {
	case failed != nil && failed.why == guest.BadModule:
		return tier.Invalid("build the module again", "%s", failed.text)
	case len(machine) > 0:
		return h.store.put(digest, guest.AppendEntryHead(nil, key, len(code)), code, machine)
	case errors.Is(context.Cause(ctx), tier.ErrTimeout), exited.CPU > compileCPU-time.Second: // the kernel's count is not exact
		return tier.Invalid("use a smaller module", "the module takes longer to compile than may be: %s of a processor's time", compileCPU)
	case exited.OOM:
		return tier.Invalid("use a smaller module", "the module takes more than %d MiB to compile", compileMemory>>20)
	case ctx.Err() != nil:
		return tier.Unavailable("start it again", "the sandbox host is closed")
	}
	return crashed(exited, c.stderr.Kept)
}

// crashed is of a module that broke the compiler: whoever wrote it can tell more.
func crashed(x cage.Exit, said []byte) error {
	e := tier.Invalid("build the module with another toolchain, and report this", "the module cannot be compiled: the compiler ended without a word")
	if s, ok := errors.AsType[*sallyport.Error](e); ok {
		s.Err = errors.Join(s.Err, x.Err, fmt.Errorf("wait status %#x: %s", x.Status, said))
	}
	return e
}

// A compiler is a child that compiles one module.
type compiler struct {
	child  *cage.Child
	report <-chan payload.Record
	stderr *capture.Stream
}

func (h *Host) startCompiler(code []byte) (_ *compiler, err error) {
	module, err := inMemory(code)
	if err != nil {
		return nil, err
	}
	defer module.Close()
	var p child.Pipes
	defer func() { p.Finish(err != nil) }()
	null, _ := p.ToChild(true)
	stderr, stderrChild := p.FromChild()
	report, reportChild := p.FromChild()
	if p.Err != nil {
		return nil, p.Err
	}
	c := &compiler{}
	c.child, err = h.cfg.House.Start(cage.Spec{
		Program: h.program, Args: []string{Program, guest.Compile},
		Stdin: null, Stdout: stderrChild, Stderr: stderrChild, Files: []*os.File{module, reportChild},
		Memory: compileMemory, CPUs: 1, CPU: compileCPU, Threads: threads,
	})
	if err != nil {
		return nil, err
	}
	c.stderr, c.report = capture.Start(stderr, 4<<10), payload.Report(report, maxCode)
	return c, nil
}

// collect takes what the child makes. machine is nil where it did not come to its
// end.
func (c *compiler) collect() (key, machine []byte, failed *guestFailure) {
	for rec := range c.report {
		switch {
		case rec.Kind == payload.Failed:
			return nil, nil, failureOf(rec.Data)
		case rec.Kind == payload.Done:
			return key, machine, nil
		case rec.Kind == payload.Data && key == nil:
			key = rec.Data
		case rec.Kind == payload.Data:
			machine = append(machine, rec.Data...)
		}
	}
	return nil, nil, nil
}

// inMemory makes a file of bytes that is on no disk.
func inMemory(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("module", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "module")
	if _, err := f.WriteAt(b, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	_, err = f.Seek(0, 0)
	return f, err
}
