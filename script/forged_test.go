package script_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/script/frame"
)

// What the script did not name and what policies hide is refused, whatever frames
// say, and is on record. With the seal taken away, what it did not name is called:
// this test can fail.
func TestForgedCalls(t *testing.T) {
	for _, c := range []struct {
		name, tool, args string
		open, passes     bool
	}{
		{"named", "look", `{}`, false, true},
		{"not named", "do", `{}`, false, false},
		{"not named, without the seal", "do", `{}`, true, true},
		{"hidden", "secret", `{}`, false, false},
		{"hidden, without the seal", "secret", `{}`, true, false},
		{"not there", "nothing", `{}`, false, false},
		{"another's ticket", "approval_result", `{"ticket":"tkt_1"}`, false, false},
	} {
		w := newWorld(t)
		w.open = c.open
		var said error
		w.program = func(p *program) error { _, said = p.call(c.tool, c.args); return nil }
		h := w.live(0, false)
		h.script("k", "look")
		if (said == nil) != c.passes || said != nil && !strings.Contains(said.Error(), string(sallyport.NotFound)) || len(w.recorded()) != 1 {
			t.Errorf("%s: %v, %d on record", c.name, said, len(w.recorded()))
		}
		h.end()
	}
}

// A script within a script calls no tools: its policies refuse it, and where they do
// not, the engine does.
func TestNoScriptsWithinScripts(t *testing.T) {
	for _, open := range []bool{false, true} {
		w := newWorld(t)
		w.open = open
		runs := 0
		var with, without error
		w.program = func(p *program) error {
			if runs++; runs == 1 {
				_, with = p.call("run", `{"code":"-","tools":["do"]}`)
			}
			return nil
		}
		h := w.live(0, false)
		h.script("k", "*")
		if with == nil || !strings.Contains(with.Error(), "a script cannot run another that calls tools") || runs != 1 {
			t.Errorf("without the seal: %t: %v, %d runs", open, with, runs)
		}
		w.program = func(p *program) error { _, without = p.call("look", `{}`); return nil }
		if h.script("k2", "*"); without != nil {
			t.Error(without)
		}
		h.end()
	}
}

// A step of a saga calls no tools: nothing would undo what it did.
func TestNoScriptsInSagas(t *testing.T) {
	w := newWorld(t)
	h := w.live(0, false)
	defer h.end()
	tool, _ := catalogOf{}.Resolve("", "run")
	job := sallyport.Job{Tool: tool, Who: sallyport.Principal{Tenant: "t", ID: "ann"}, Reserved: sallyport.ReservationKey{Key: sallyport.SagaKey("saga_x", "a", false, 1)}}
	if _, err := h.engine.Open(t.Context(), job, []string{"do"}); sallyport.CodeOf(err) != sallyport.Invalid || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Error(err)
	}
	job.Reserved.Key = "k"
	if _, err := h.engine.Open(t.Context(), job, []string{"do", "nothing"}); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("a name of nothing: %v", err)
	}
	if r, err := h.engine.Open(t.Context(), job, []string{"do"}); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
}

// A program that does not keep to the protocol is ended, and does nothing more.
func TestHostile(t *testing.T) {
	for name, program := range map[string]func(*program) error{
		"garbage": func(p *program) error { p.run.Hear([]byte("hello\n")); return nil },
		"a number used again": func(p *program) error {
			_, err := p.call("look", `{}`)
			p.n = 0
			p.send("do", `{}`)
			return err
		},
		"a flood": func(p *program) error {
			for range 10 * frame.AtOnce {
				p.send("look", `{}`)
			}
			return nil
		},
		"a huge frame": func(p *program) error {
			for range frame.MaxBytes>>16 + 1 {
				p.run.Hear(make([]byte, 1<<16))
			}
			return nil
		},
		"too many": func(p *program) error {
			for range frame.MaxCalls + 1 {
				if _, err := p.call("nothing", `{}`); err != nil && errors.Is(err, errStopped) {
					return err
				}
			}
			return nil
		},
	} {
		w := newWorld(t)
		w.program = program
		if name == "a flood" {
			w.act = func(context.Context, sallyport.Job) error { time.Sleep(20 * time.Millisecond); return nil }
		}
		h := w.live(0, false)
		o := h.script("k", "*")
		if o.Stopped == nil || o.Stopped.Code != sallyport.Invalid && o.Stopped.Code != sallyport.RateLimited || len(w.done()) > 0 || len(o.Calls) > frame.MaxCalls {
			t.Errorf("%s: %s, %q", name, o, w.done())
		}
		h.end()
	}
}

// What a program is given is bounded, whether or not it reads it.
func TestResultsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.text = strings.Repeat("x", 4<<20)
	n := 0
	w.program = func(p *program) error {
		for ; n < frame.MaxCalls; n++ {
			if _, err := p.call("look", `{}`); err != nil {
				return err
			}
		}
		return nil
	}
	h := w.live(0, false)
	defer h.end()
	if o := h.script("k", "*"); o.Stopped == nil || o.Stopped.Code != sallyport.TooLarge || n > 20 {
		t.Errorf("%d calls, %v", n, o.Stopped)
	}
}

// What comes after the end is nothing.
func TestCallsAfterTheEnd(t *testing.T) {
	w := newWorld(t)
	var left *program
	w.program = func(p *program) error { left = p; return nil }
	h := w.live(0, false)
	defer h.end()
	if o := h.script("k", "*"); o.err != nil {
		t.Fatal(o)
	}
	left.send("do", `{}`)
	if calls, _, _ := left.run.Close(); len(calls) != 0 || len(w.done()) != 0 || len(w.recorded()) != 0 {
		t.Errorf("%+v, %q", calls, w.done())
	}
}

// Answers come in the order of the calls, whichever is done first.
func TestAnswersAreInOrder(t *testing.T) {
	w := newWorld(t)
	w.act = func(_ context.Context, job sallyport.Job) error {
		if string(job.Args) == `{"n":1}` {
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	}
	w.program = func(p *program) error {
		for n := 1; n <= frame.AtOnce; n++ {
			p.send("do", fmt.Sprintf(`{"n":%d}`, n))
		}
		for n := 1; n <= frame.AtOnce; n++ {
			if r, err := p.recv(); err != nil || r.N != n {
				return fmt.Errorf("answer %d is %+v, %w", n, r, err)
			}
		}
		return nil
	}
	h := w.live(0, false)
	defer h.end()
	if o := h.script("k", "*"); o.Failed != "<nil>" || len(w.done()) != frame.AtOnce {
		t.Errorf("%s, %q", o, w.done())
	}
}
