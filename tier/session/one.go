package session

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/tier/stay"
)

// A session is one sandbox and the conversation with its process 1.
type session struct {
	key     Key
	terms   Terms
	born    time.Time
	turn    chan struct{} // holds one: whoever is in the session
	waiting atomic.Int32
	ready   atomic.Bool // it has begun
	used    atomic.Int64
	request tier.Request // that it was made with
	secret  bool         // its environment holds secrets

	mu     sync.Mutex
	box    *stay.Kept // nil while it is frozen
	frozen *frozen
	answer chan payload.Record // of the request that runs, nil if none
	jobs   []*job
	node   bool     // JavaScript has run in it
	denied []string // that programs asked a proxy for that denies everything

	once sync.Once
	gone chan struct{} // closed when it is over
	why  string        // valid once gone is closed
}

func newSession(k Key, terms Terms) *session {
	return &session{key: k, terms: terms, born: time.Now(), turn: make(chan struct{}, 1), gone: make(chan struct{})}
}

func (s *session) begin(ctx context.Context, h stay.Host, r tier.Request) error {
	box, err := h.Keep(ctx, r)
	if err != nil {
		return err
	}
	s.request = r
	s.ready.Store(true)
	return s.live(&box)
}

// live begins the conversation with a sandbox.
func (s *session) live(box *stay.Kept) error {
	s.mu.Lock()
	s.box = box
	s.mu.Unlock()
	if s.over() { // meanwhile
		return errors.Join(sandboxError(s.why), box.Destroy())
	}
	s.touch()
	go s.read(box)
	go func() {
		select {
		case <-box.Killed():
			if s.awake() == box {
				s.end("it was killed")
			}
		case <-s.gone:
		}
	}()
	return nil
}

func (s *session) spoke(language string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = s.node || language == "javascript"
}

// awake is the session's sandbox, nil if it has none now.
func (s *session) awake() *stay.Kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.box
}

func (s *session) touch() { s.used.Store(time.Now().UnixNano()) }

func (s *session) over() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// endedBy is why it is over, "" if it is not.
func (s *session) endedBy() string {
	if s.over() {
		return s.why
	}
	return ""
}

// end ends the session, and returns when nothing is left of it. It is idempotent.
func (s *session) end(why string) {
	s.once.Do(func() {
		s.why = why
		close(s.gone)
		s.mu.Lock()
		box, f := s.box, s.frozen
		s.mu.Unlock()
		if box != nil {
			logEnd(box.ID, box.Destroy())
		}
		if f != nil {
			f.file.Close()
		}
	})
}

// queue takes a place among those that wait, if there is one.
func (s *session) queue() bool {
	if s.waiting.Add(1) > maxWaiting {
		s.waiting.Add(-1)
		return false
	}
	return true
}

// tired says why the session should end, if it should.
// Preconditions: nobody is in it.
func (s *session) tired(c Config) string {
	box := s.awake()
	switch {
	case s.over():
		return ""
	case box != nil && box.OutOfMemory():
		return "memory"
	case time.Since(s.born) > c.Life:
		return "it is as old as a session may be"
	case s.running() == 0 && s.idle() > c.Idle:
		return "it was idle"
	}
	return ""
}

// rests says whether it should be frozen.
// Preconditions: nobody is in it.
func (s *session) rests(c Config) bool {
	return c.Rest > 0 && !s.secret && !s.over() && s.awake() != nil && s.running() == 0 && s.idle() > c.Rest
}

func (s *session) idle() time.Duration { return time.Since(time.Unix(0, s.used.Load())) }

func (s *session) info() Info {
	i := Info{Name: s.key.Name, Since: s.born, Used: time.Unix(0, s.used.Load()), Jobs: s.running()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.Frozen = s.frozen != nil; s.box != nil {
		i.ID = s.box.ID
	}
	return i
}

// read passes on what process 1 says, until the sandbox ends.
func (s *session) read(box *stay.Kept) {
	for {
		k, data, err := payload.Read(box.Out)
		if err != nil {
			if s.awake() == box { // else it is being frozen
				s.end(s.cause())
			}
			return
		}
		r := payload.Record{Kind: k, Data: data}
		switch {
		case s.ofJob(r):
			continue
		case k == payload.Denied:
			s.mu.Lock()
			if len(s.denied) < payload.MaxDenied { // a job in the background may go on for hours
				s.denied = append(s.denied, string(data))
			}
			s.mu.Unlock()
			continue
		case len(data) >= 4 && (k == payload.Stdout || k == payload.Stderr):
			r.Data = data[4:]
		}
		s.mu.Lock()
		to := s.answer
		if k == payload.Exit || k == payload.OK || k == payload.Refused || k == payload.Failed {
			s.answer = nil
		}
		s.mu.Unlock()
		if to == nil {
			continue // what is written after a call belongs to none
		}
		select {
		case to <- r:
		case <-s.gone:
			return
		}
	}
}

// cause says why the sandbox ended by itself.
func (s *session) cause() string {
	if box := s.awake(); box != nil && box.OutOfMemory() {
		return "memory"
	}
	return "its sandbox ended"
}

// ask sends a request, and returns where its answers come. The last of them is
// an Exit, OK or Refused.
// Preconditions: it is the caller's turn.
func (s *session) ask(request []byte) <-chan payload.Record {
	to := make(chan payload.Record, 16)
	s.mu.Lock()
	s.answer = to
	s.mu.Unlock()
	box := s.awake()
	go func() { // process 1 may have much to say before it reads on
		if _, err := box.In.Write(request); err != nil {
			s.end(s.cause())
		}
	}()
	return to
}

// silence is how long process 1 may take to go on with an answer.
const silence = 30 * time.Second

// simple makes a request that has one answer.
func (s *session) simple(request []byte) (payload.Record, error) { return s.last(s.ask(request), nil) }

// last waits for the end of an answer; what comes before goes to each, until
// that fails. A caller who goes away changes nothing: it is heard to its end, so
// that the next request gets its own answer.
func (s *session) last(answers <-chan payload.Record, each func(payload.Record) error) (payload.Record, error) {
	var failed error
	late := time.NewTimer(silence)
	defer late.Stop()
	for {
		select {
		case r := <-answers:
			switch r.Kind {
			case payload.OK:
				return r, failed
			case payload.Refused:
				return r, refusal(r.Data)
			default:
				if each != nil && failed == nil {
					failed = each(r)
				}
			}
			late.Reset(silence)
		case <-late.C:
			s.end("its process 1 does not answer")
		case <-s.gone:
			return payload.Record{}, sandboxError(s.why)
		}
	}
}

func cut(term string) (name, value string, ok bool) { return strings.Cut(term, "=") }

func join(words []string) string { return strings.Join(words, ", ") }

// denials tells what was denied since it was asked last.
func (s *session) denials() []sallyport.Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := tier.Denials(s.denied)
	s.denied = nil
	return d
}
