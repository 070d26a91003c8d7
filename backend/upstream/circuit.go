package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/breaker"
	"sallyport.dev/sallyport/backend/upstream/failure"
	"sallyport.dev/sallyport/backend/upstream/pipe"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/pause"
)

// A server that is not there makes nobody wait (acquire). One that is, and does
// not serve, is left alone for a while: that is the breaker's part. And a program
// that has fallen silent is asked whether it still answers.

// errMute: it takes what is sent, and answers nothing.
var errMute = errors.New("it takes calls and does not answer")

// pass lets a call through to the server, or says when to come back. said must be
// told how the server did.
func (s *server) pass() (said func(breaker.Verdict), err error) {
	said, wait, ok := s.circuit.Enter()
	if ok {
		if s.circuit.Read().State == breaker.HalfOpen {
			return s.vouch(said), nil
		}
		return said, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return nil, s.cutOff(wait)
}

// vouch is said for the call that is the probe. Its tool may take long, and everybody
// else waits for it: so the server is asked meanwhile whether it answers.
func (s *server) vouch(said func(breaker.Verdict)) func(breaker.Verdict) {
	ctx, over := context.WithCancel(s.life)
	go func() {
		for pause.For(ctx, s.o.Probe) {
			s.mu.Lock()
			se := s.se
			s.mu.Unlock()
			if se != nil && se.answers(ctx, s.o.Probe) {
				said(breaker.Served)
				return
			}
		}
	}()
	return func(v breaker.Verdict) { over(); said(v) }
}

// cutOff says why no call goes to the server. Preconditions: s.mu is held.
func (s *server) cutOff(wait time.Duration) *sallyport.Error {
	why := "it did not serve"
	if s.trouble != nil {
		why = failure.Brief(s.trouble)
	}
	return outcome.CutOff(s.Name, wait, "failed: "+why)
}

// judge tells the breaker what a call's end says of the server. Where a call was
// not answered in time, the server is asked: it may be well, and the tool slow.
func (s *server) judge(ctx context.Context, err error, said func(breaker.Verdict)) {
	late := errors.Is(ctx.Err(), context.DeadlineExceeded) && outcome.IsContext(err) && !errors.Is(err, sallyport.ErrNotExecuted)
	if !late {
		s.report(failure.Verdict(err), err, said)
		return
	}
	s.mu.Lock()
	se := s.se
	s.mu.Unlock()
	go func() {
		v := breaker.Served
		switch {
		case se == nil || s.life.Err() != nil:
			v = breaker.Untold
		case !se.answers(s.life, s.o.Probe):
			v = breaker.Failed
		}
		s.report(v, errMute, said)
	}()
}

func (s *server) report(v breaker.Verdict, err error, said func(breaker.Verdict)) {
	if v == breaker.Failed {
		s.mu.Lock()
		s.trouble = err
		s.mu.Unlock()
	}
	said(v)
}

// Down names the servers that take no calls just now, sorted. What they told before
// still counts.
func (b *Backend) Down() (names []string) {
	for _, s := range b.Status() {
		if s.State == StateDown || s.Circuit == breaker.Open {
			names = append(names, s.Name)
		}
	}
	return names
}

// answers asks the server something harmless. Any answer will do.
func (se *session) answers(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	method := "ping"
	if se.era == eraModern {
		method = "server/discover"
	}
	_, err := se.request(ctx, method, nil, true)
	st, isStatus := errors.AsType[*status.Error](err)
	return err == nil || isStatus && st.Code < 500
}

// feel asks a program that has said nothing for a while whether it still answers,
// for as long as the session lasts. One that does not is started again, unless a
// call that it had before is still open: that may be what it works on.
func (s *server) feel(ctx context.Context, se *session) {
	program, ok := se.link.(*pipe.Pipe)
	for ok && pause.For(ctx, s.o.Pulse) {
		if program.Silence() < s.o.Pulse {
			continue
		}
		asked := ids.Load()
		if se.answers(ctx, s.o.Answer) || ctx.Err() != nil || program.Works(asked) {
			continue
		}
		s.note(fmt.Sprintf("(sallyport: started again, for it has not answered within %v)", s.o.Answer))
		program.Close(s.o.Grace)
		return
	}
}
