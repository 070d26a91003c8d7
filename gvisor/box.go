package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/capture"
	"sallyport.dev/sallyport/tier/child"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/tier/stay"
)

// A Box is a sandbox that stays. Its process 1 takes requests, one at a time,
// as package payload says; package session knows what they mean.
type Box struct {
	In  io.Writer // requests
	Out io.Reader // answers; ends when the sandbox does

	h    *Host
	way  tier.Way
	wmu  sync.Mutex
	went tier.Passed // since openWay; guarded by wmu
	hit  []string    // limits, before it was destroyed; guarded by wmu
	peak int64       // of memory, then; guarded by wmu
	s    *sandbox
	in   *os.File
	out  *os.File
	hits *os.File // from the limits sink

	bounds sallyport.AppliedLimits // as they were read back at its start

	once sync.Once
	err  error
}

// OpenBox starts a sandbox that stays until Destroy. Of r, Argv, Files and Stdin
// are not used. The box does not count among MaxRuns.
func (h *Host) OpenBox(ctx context.Context, r tier.Request) (*Box, error) {
	if r.GPU {
		return nil, tier.Invalid("run it without a session", "a session has no GPU")
	}
	r.Argv = []string{"-"}
	r.Files, r.Stdin = nil, nil
	if err := r.Check(); err != nil {
		return nil, err
	}
	image, digest, err := h.images.Find(h.cfg.Images, r.Image)
	if err != nil {
		return nil, err
	}
	b := &Box{h: h, way: r.Way, s: h.newSandbox(context.WithoutCancel(ctx), r)}
	b.s.held = held{platform: h.usual(), image: digest, runtime: h.version}
	if err := h.bring(b.s, r, func() error { return b.start(h.usual(), image, nil) }, h.tryWay); err != nil {
		return nil, err
	}
	if err := b.ready(ctx, r); err != nil {
		return nil, errors.Join(tier.Unavailable("see the log of sallyport-sandboxd", "the sandbox of the session did not come up"), err, b.Destroy())
	}
	return b, nil
}

// start starts sallyport-runsc; process 1 talks on its own stdin and stdout. With
// state, that of a frozen box, it goes on from there.
func (b *Box) start(platform string, image, state *os.File) (err error) {
	spec, err := bundleSpec(filepath.Join(b.h.bundle(), "root"), b.s.way(), "session")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.s.dir, "config.json"), spec, 0o600); err != nil {
		return err
	}
	var p child.Pipes
	defer func() { p.Finish(err != nil) }()
	stdin, in := p.ToChild(false)
	out, stdout := p.FromChild()
	log, stderr := p.FromChild()
	hits, hitsChild := p.FromChild()
	null, _ := p.ToChild(true)
	if p.Err != nil {
		return p.Err
	}
	s := b.s
	args := []string{"run", "--bundle=" + s.dir, fmt.Sprintf("--exec-fd=%d", fdInit), s.id}
	files := []*os.File{b.h.init, null, null, image, hitsChild}
	if state != nil {
		args = []string{"restore", "--bundle=" + s.dir, "--image-path=" + s.dir, s.id}
		files = append(files, state)
		if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", fdState), filepath.Join(s.dir, "checkpoint.img")); err != nil {
			return err
		}
	}
	s.cmd = b.h.runtime(s, platform, args...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = stdin, stdout, stderr
	s.cmd.ExtraFiles = files
	if err := b.h.spawn.Start(s.cmd); err != nil {
		return err
	}
	s.stderr, b.hits = capture.Start(log, 4<<10), hits
	b.in, b.out, b.In, b.Out = in, out, in, out
	return nil
}

// tryWay opens the way out of a box, to see that it can be and what the sandbox
// must trust; ready shuts it.
func (h *Host) tryWay(s *sandbox, r tier.Request) error {
	return h.listenWay(s, r.Way, bootPatience+killPatience)
}

// Keep implements stay.Host.
func (h *Host) Keep(ctx context.Context, r tier.Request) (stay.Kept, error) {
	b, err := h.OpenBox(ctx, r)
	if err != nil {
		return stay.Kept{}, err
	}
	return b.kept(), nil
}

func (b *Box) kept() stay.Kept { return stay.Kept{Box: b, ID: b.s.id, In: b.In, Out: b.Out} }

// Begin implements stay.Box. What the sandbox must trust is sent to it.
func (b *Box) Begin(callID string, within time.Duration) error {
	b.h.mu.Lock()
	b.s.callID = callID
	b.h.mu.Unlock()
	b.limitsHit() // what came before is not of this call
	return b.openWay(within)
}

// End implements stay.Box.
func (b *Box) End(l sallyport.Limits) stay.Held {
	went := b.takeWay()
	hit, peak := b.limitsHit(), b.s.group.Peak()
	b.wmu.Lock()
	defer b.wmu.Unlock()
	return stay.Held{Passed: went, LimitsHit: append(hit, b.hit...), PeakMemory: max(peak, b.peak), Receipt: b.receipt(went.Egress, l)}
}

// openWay lets the sandbox reach what it may, until takeWay or for as long as
// within. What it must trust is sent to it.
func (b *Box) openWay(within time.Duration) error {
	b.wmu.Lock()
	defer b.wmu.Unlock()
	b.s.ca = tier.Authority{} // one for each grant
	if err := b.h.listenWay(b.s, b.way, within+killPatience); err != nil || b.s.ca.Cert == nil {
		return err
	}
	_, err := b.In.Write(b.s.appendTrust(nil))
	return err
}

// takeWay tells what was reached, or tried, since openWay. From then on nothing is.
func (b *Box) takeWay() tier.Passed {
	b.wmu.Lock()
	defer b.wmu.Unlock()
	b.shut()
	went := b.went
	b.went = tier.Passed{}
	return went
}

// shutWay is takeWay, and keeps what it tells for who asks.
func (b *Box) shutWay() {
	b.wmu.Lock()
	defer b.wmu.Unlock()
	b.shut()
}

// Preconditions: b.wmu is held.
func (b *Box) shut() {
	if b.s.endWay == nil {
		return
	}
	now := b.s.closeWay()
	b.went = tier.Passed{Egress: now.Egress, Connections: append(b.went.Connections, now.Connections...)}
}

// receipt tells how one program of the box was held, after its end.
func (b *Box) receipt(e sallyport.AppliedEgress, l sallyport.Limits) sallyport.Receipt {
	r := b.s.receipt(e)
	if r.Limits.Memory == 0 { // its control group has ended with it
		r.Limits = b.bounds
	}
	r.Limits.Output, r.Limits.Timeout = l.Output, l.Timeout.Milliseconds()
	return r
}

// ready tells process 1 what the sandbox is like, and waits for it.
func (b *Box) ready(ctx context.Context, r tier.Request) error {
	defer b.takeWay()
	p := b.s.appendNature(nil, r.Limits)
	for _, e := range b.s.environment(r.Env, false) {
		p = payload.Append(p, payload.Env, []byte(e))
	}
	if _, err := b.In.Write(payload.Append(p, payload.Keep, nil)); err != nil {
		return err
	}
	facts, err := b.expect(ctx, payload.Ready)
	b.h.up(b.s)
	b.s.held.inside, b.s.held.known = payload.ParseFacts(facts)
	b.bounds = b.s.receipt(sallyport.AppliedEgress{}).Limits
	return err
}

// expect reads one record, which must be of a kind.
func (b *Box) expect(ctx context.Context, want payload.Kind) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = b.out.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = b.out.SetReadDeadline(time.Now().Add(bootPatience))
	k, data, err := payload.Read(b.Out)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("process 1: %w", err)
	case k != want:
		return nil, fmt.Errorf("process 1: %q", data)
	}
	return data, b.out.SetReadDeadline(time.Time{})
}

// OutOfMemory implements stay.Box.
func (b *Box) OutOfMemory() bool { return b.s.group.OOMKills() > 0 }

// limitsHit names the limits that programs ran into since it was asked last.
func (b *Box) limitsHit() []string {
	var told []byte
	raw, err := b.hits.SyscallConn()
	if err == nil {
		_ = raw.Read(func(fd uintptr) bool {
			buf := make([]byte, 4<<10)
			if n, _ := unix.Read(int(fd), buf); n > 0 {
				told = buf[:n]
			}
			return true
		})
	}
	return namesOf(told)
}

// Killed implements stay.Box.
func (b *Box) Killed() <-chan struct{} { return b.s.ctx.Done() }

// Destroy implements stay.Box.
func (b *Box) Destroy() error {
	b.once.Do(func() {
		b.in.Close()
		b.shutWay()
		b.wmu.Lock()
		b.hit, b.peak = b.limitsHit(), b.s.group.Peak()
		b.wmu.Unlock()
		b.err = b.h.discard(b.s)
		b.out.Close()
		b.hits.Close()
	})
	return b.err
}
