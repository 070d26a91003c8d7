package microvm

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/ahead"
	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// A Session is a guest that stays: programs run in it one after another, and
// what they leave in memory is there for the next one. It can be forked. The
// methods of one session wait for each other.
type Session struct {
	u     *run
	leave func()

	turn   sync.Mutex
	report <-chan record
	ways   sync.Mutex // guards the way out
	once   sync.Once
	err    error
}

// OpenSession makes one. Of r, Argv, Files, Stdin and Told are not used; Env is
// what its programs start with. It counts among MaxRuns until Close.
func (h *Host) OpenSession(ctx context.Context, r tier.Request) (*Session, error) {
	r.Argv, r.Files, r.Stdin, r.Told, r.Talk = []string{"-"}, nil, nil, nil, nil
	if err := h.check(r); err != nil {
		return nil, err
	}
	image, digest, err := h.images.Find(h.cfg.Images, r.Image)
	if err != nil {
		return nil, err
	}
	c, err := h.choose(ctx, digest)
	if err != nil {
		return nil, err
	}
	k := kind{image: digest, ram: ramOf(r.Limits.Memory)}
	base, err := h.prepare(ctx, c, k, image)
	if err != nil {
		return nil, err
	}
	s, err := h.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	m, err := h.restore(ctx, c, k, base, image, r.Limits.Memory, r.Limits.CPUs)
	if err != nil {
		return nil, errors.Join(s.u.notRun(ctx, err), s.Close())
	}
	s.live(m)
	err = m.renew(ctx, guest.Bounds{}, bootPatience)
	if err == nil {
		err = m.launch(ctx, guest.Launch{Memory: r.Limits.Memory, Stays: true, Leads: len(r.Way.Reach) > 0})
	}
	if err == nil {
		err = s.furnish(ctx)
	}
	if err != nil {
		return nil, errors.Join(s.u.notRun(ctx, err), s.Close())
	}
	return s, nil
}

// enter takes a place for a session.
func (h *Host) enter(ctx context.Context, r tier.Request) (*Session, error) {
	leave, err := h.places.Take(ctx)
	if err != nil {
		return nil, err
	}
	u, err := h.newRun(context.WithoutCancel(ctx), r)
	if err != nil {
		leave()
		return nil, err
	}
	return &Session{u: u, leave: leave}, nil
}

// live has the session end with its guest, and its guest with the session.
func (s *Session) live(m *machine) {
	s.u.m = m
	s.report = readReport(m.mux.Stream(guest.Report))
	go func() {
		select {
		case <-s.u.ctx.Done():
		case <-m.mux.Done():
		}
		s.Close() // who closes it is told
	}()
}

// ID names it, as List does.
func (s *Session) ID() string { return s.u.id }

// Close ends the session. When it returns, nothing of it is left. It is idempotent.
func (s *Session) Close() error {
	s.once.Do(func() {
		s.u.cancel(tier.ErrClosed)
		s.ways.Lock()
		s.u.way.close()
		s.ways.Unlock()
		if s.u.m != nil {
			s.err = s.u.m.destroy()
			for range s.report { // it must be taken
			}
		}
		s.u.h.forget(s.u)
		s.leave()
	})
	return s.err
}

// furnish tells process 1 what the session is like.
func (s *Session) furnish(ctx context.Context) error {
	r := s.u.r
	if err := s.openWay(); err != nil {
		return err
	}
	b := appendNature(nil, r.Limits, len(r.Way.Reach) > 0)
	b = s.appendTrust(b)
	for _, e := range s.u.environment(r.Env) {
		b = payload.Append(b, payload.Env, []byte(e))
	}
	if err := s.order(ctx, payload.Append(b, payload.Keep, nil)); err != nil {
		return err
	}
	rec, err := s.answer(ctx, waitPatience)
	if err == nil && rec.kind != payload.Ready {
		err = errors.New("the sandbox of the session did not come up")
	}
	if err == nil {
		s.u.m.facts, s.u.m.known = payload.ParseFacts(rec.data)
	}
	return err
}

// sessionLife bounds what a session may reach.
const sessionLife = 8 * time.Hour

func (s *Session) openWay() (err error) {
	s.ways.Lock()
	defer s.ways.Unlock()
	s.u.way, err = s.u.h.openWay(s.u.m, s.u.id, s.u.r.Way, sessionLife)
	if err == nil && s.u.ctx.Err() != nil { // its guest ended meanwhile, and nobody else would close it
		s.u.way.close()
		err = context.Cause(s.u.ctx)
	}
	return err
}

func (s *Session) appendTrust(b []byte) []byte {
	if ca := s.u.way.trusted(); ca != nil {
		return payload.Append(b, payload.CA, ca)
	}
	return b
}

// order gives process 1 records. A guest that does not take them in time ends.
func (s *Session) order(ctx context.Context, b []byte) error {
	end := func() { _ = s.u.m.mux.Close() }
	late := time.AfterFunc(s.u.r.Limits.Timeout, end)
	defer context.AfterFunc(ctx, end)()
	_, err := s.u.m.mux.Stream(guest.Orders).Write(b)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case !late.Stop() && err != nil:
		return tier.ErrTimeout
	}
	return err
}

// answer waits for the next record of process 1.
func (s *Session) answer(ctx context.Context, patience time.Duration) (record, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case rec, ok := <-s.report:
		if !ok {
			return rec, errGone
		}
		return rec, nil
	case <-late.C:
		return record{}, tier.ErrTimeout
	case <-ctx.Done():
		return record{}, ctx.Err()
	case <-s.u.ctx.Done():
		return record{}, context.Cause(s.u.ctx)
	}
}

// Run runs one program of a language, "python" or "shell", to its end. One that is
// killed, for time or memory, takes the session with it.
func (s *Session) Run(ctx context.Context, language string, code, stdin []byte) (res tier.Result, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	began := time.Now()
	argv, last := ahead.Resident("python"), payload.Append(nil, payload.Interpret, []byte("python"))
	switch language {
	case "python":
	case "shell":
		argv, last = ahead.Shell(), payload.Append(nil, payload.Spawn, payload.AppendUint32(nil, 0))
	default:
		return res, tier.Invalid("use python or shell", "a session that can be forked does not speak %.40q", language)
	}
	var b []byte
	for kind, text := range map[payload.Kind][]byte{payload.Code: code, payload.Stdin: stdin} {
		for len(text) > 0 {
			n := min(len(text), payload.MaxRecord)
			b, text = payload.Append(b, kind, text[:n]), text[n:]
		}
	}
	for _, a := range argv {
		b = payload.Append(b, payload.Arg, []byte(a))
	}
	res = tier.Result{ID: s.u.id}
	if err = s.order(ctx, append(b, last...)); err == nil {
		err = s.follow(ctx, &res)
	}
	res.Duration = time.Since(began)
	if err != nil {
		return s.ended(ctx, res, err)
	}
	res.Receipt = s.u.receipt(sallyport.AppliedEgress{Rules: s.u.r.Way.Reach})
	res.Receipt.Exit = "exited"
	if res.Signal != "" {
		res.Receipt.Exit = "signaled"
	}
	return res, nil
}

// follow takes what a program says until its end.
func (s *Session) follow(ctx context.Context, res *tier.Result) error {
	end := time.Now().Add(s.u.r.Limits.Timeout)
	for {
		rec, err := s.answer(ctx, time.Until(end))
		if err != nil {
			return err
		}
		switch rec.kind {
		case payload.Stdout, payload.Stderr:
			to := &res.Stdout
			if rec.kind == payload.Stderr {
				to = &res.Stderr
			}
			text := rec.data[min(4, len(rec.data)):]
			room := min(s.u.r.Limits.Output-int64(len(*to)), int64(len(text)))
			res.Truncated = res.Truncated || room < int64(len(text))
			*to = append(*to, text[:room]...)
		case payload.Exit:
			ws := unix.WaitStatus(payload.Uint32(rec.data))
			if res.ExitCode = ws.ExitStatus(); ws.Signaled() {
				res.ExitCode, res.Signal = 128+int(ws.Signal()), unix.SignalName(ws.Signal())
			}
			return nil
		case payload.Refused:
			return tier.Invalid("see the message", "the session refused: %.200s", rec.data[min(4, len(rec.data)):])
		default: // no part of the answer
		}
	}
}

// ended tells why a session is over.
func (s *Session) ended(ctx context.Context, res tier.Result, err error) (tier.Result, error) {
	if known, ok := errors.AsType[*sallyport.Error](err); ok {
		return res, known
	}
	if errors.Is(err, errGone) { // its sandbox, or the whole guest
		if b, e := s.u.m.hear(ctx, guest.Ended, time.Second); e == nil {
			if how, ok := guest.ParseEnding(b); ok && how.OOMKills > 0 {
				err = errMemory
			}
		}
	}
	if s.u.m.group.OOMKills() > 0 {
		err = errMemory
	}
	res.ExitCode, res.Signal = 128+int(unix.SIGKILL), "SIGKILL"
	switch {
	case errors.Is(err, tier.ErrTimeout):
		res.KilledBy, err = tier.KilledByTimeout, nil
	case errors.Is(err, errMemory):
		res.KilledBy, err = tier.KilledByMemory, nil
	}
	if e := s.Close(); err == nil {
		err = e
	}
	return res, err
}
