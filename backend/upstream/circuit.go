package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/breaker"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/pipe"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/wire"
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
		return said, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return nil, &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Err: sallyport.ErrNotExecuted, RetryAfter: wait,
		Message: s.cutOff(wait), Hint: "try after retry_after: one call is let through then, to see whether the server is well again",
	}
}

// cutOff says why no call goes to the server. Preconditions: s.mu is held.
func (s *server) cutOff(wait time.Duration) string {
	why := "it did not serve"
	if s.trouble != nil {
		why = brief(s.trouble)
	}
	return fmt.Sprintf("server %q gets no calls for now (circuit open, next try in %v), for several in a row failed: %s", s.Name, wait.Round(time.Second/10), why)
}

// judge tells the breaker what a call's end says of the server. Where a call was
// not answered in time, the server is asked: it may be well, and the tool slow.
func (s *server) judge(ctx context.Context, err error, said func(breaker.Verdict)) {
	late := errors.Is(ctx.Err(), context.DeadlineExceeded) && outcome.IsContext(err) && !errors.Is(err, sallyport.ErrNotExecuted)
	if !late {
		s.report(verdict(err), err, said)
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

// verdict is what a call's end says of the server: that a tool fails says nothing
// against it, and what was never sent nothing at all.
func verdict(err error) breaker.Verdict {
	st, isStatus := errors.AsType[*status.Error](err)
	_, isRPC := errors.AsType[*wire.Error](err)
	switch {
	case err == nil, isRPC, errors.Is(err, link.ErrTooLarge), errors.Is(err, link.ErrMalformed):
		return breaker.Served
	case isStatus && (st.Code < 500 || st.RPC || st.Code == http.StatusNotImplemented):
		return breaker.Served
	case outcome.IsContext(err), errors.Is(err, sallyport.ErrNotExecuted):
		return breaker.Untold
	}
	return breaker.Failed
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
