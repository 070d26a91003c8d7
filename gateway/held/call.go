package held

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
)

// A call goes on whether its client is there or not.
type call struct {
	c      *Calls
	id     [16]byte
	cancel context.CancelCauseFunc
	notify atomic.Pointer[func(sallyport.Notice)] // of the client that follows, if one does
	news   chan struct{}                          // holds one: there are questions that the client was not told

	lasting chan struct{} // closed when the outcome will be found by the call's name

	done chan struct{} // closed when the call has ended, with:
	res  sallyport.Result
	err  error

	mu       sync.Mutex // guards what follows
	kept     bool
	owner    string
	binding  string
	approved bool
	callID   string
	open     []*inquiry // that wait for answers
	brought  answers    // by a client that knew what it would be asked
	turns    uint64
	turn     uint64      // whose state is good; 0 if none is
	timer    *time.Timer // ends a call whose client does not come back
	name     string      // that the client has, or gets, instead of an answer
	still    func(sallyport.Principal) error
	used     map[string]bool
}

// An inquiry is questions that wait for their answers together.
type inquiry struct {
	questions []sallyport.Question // with keys of the call's own
	reply     chan []sallyport.Answer
	have      answers // of a task, whose client may answer one by one
}

// gather keeps answers of a task's client, and reports whether all are there.
func (in *inquiry) gather(brought answers) bool {
	if in.have == nil {
		in.have = answers{}
	}
	for _, q := range in.questions {
		if a, ok := brought[q.Key]; ok && in.have[q.Key] == nil {
			in.have[q.Key] = a
		}
	}
	return len(in.have) == len(in.questions)
}

// unanswered are the questions that are still to be answered.
func (in *inquiry) unanswered() (open []sallyport.Question) {
	for _, q := range in.questions {
		if in.have[q.Key] == nil {
			open = append(open, q)
		}
	}
	return open
}

func (h *call) listen(notify func(sallyport.Notice)) {
	if notify == nil {
		notify = func(sallyport.Notice) {}
	}
	h.notify.Store(&notify)
}

func (h *call) hear(n sallyport.Notice) { (*h.notify.Load())(n) }

// ask puts questions to the client, whenever it is there.
func (h *call) ask(ctx context.Context, q sallyport.Inquiry) ([]sallyport.Answer, error) {
	in, found, err := h.post(q)
	if err != nil || found != nil {
		return found, err
	}
	select {
	case a := <-in.reply:
		return a, nil
	case <-ctx.Done():
		h.drop(in)
		return nil, ctx.Err()
	}
}

// post notes questions. Those that the client brought answers to are answered.
func (h *call) post(q sallyport.Inquiry) (in *inquiry, found []sallyport.Answer, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.stay(q.Owner); err != nil {
		return nil, nil, err
	}
	h.binding, h.approved, h.callID = q.Binding, q.Approved, q.CallID
	in = &inquiry{reply: make(chan []sallyport.Answer, 1)}
	for _, x := range q.Questions {
		x.Key = h.unused(x.Key, in)
		in.questions = append(in.questions, x)
	}
	if found, some := in.answered(h.brought); some {
		h.brought = nil
		return nil, found, nil
	}
	h.brought = nil
	h.open = append(h.open, in)
	select {
	case h.news <- struct{}{}:
	default:
	}
	return in, nil, nil
}

// stay keeps the call findable. Preconditions: h.mu is held.
func (h *call) stay(owner string) error {
	if h.kept {
		return nil
	}
	h.owner = owner
	err := h.c.keep(h, owner)
	h.kept = err == nil
	return err
}

// unused is a key that no open question has; nor any that a task has asked.
// Preconditions: h.mu is held.
func (h *call) unused(key string, in *inquiry) string {
	taken := func(k string) bool {
		if h.name != "" && h.used[k] {
			return true
		}
		for _, o := range append(h.open, in) {
			for _, q := range o.questions {
				if q.Key == k {
					return true
				}
			}
		}
		return false
	}
	next := key
	for i := 2; taken(next); i++ {
		next = fmt.Sprintf("%s (%d)", key, i)
	}
	if h.used == nil {
		h.used = map[string]bool{}
	}
	h.used[next] = true
	return next
}

// answered picks an inquiry's answers. some is false if there is none.
func (in *inquiry) answered(from answers) (found []sallyport.Answer, some bool) {
	found = make([]sallyport.Answer, len(in.questions))
	for i, q := range in.questions {
		if a, ok := from[q.Key]; ok {
			found[i].Result, some = a, true
		}
	}
	return found, some
}

// drop takes back questions that nobody wants answered any more.
func (h *call) drop(in *inquiry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, o := range h.open {
		if o == in {
			h.open = append(h.open[:i:i], h.open[i+1:]...)
			return
		}
	}
}

// deliver takes the answers of a client that came back. A turn is good once.
func (h *call) deliver(turn uint64, r sallyport.Return) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if turn == 0 || turn != h.turn || r.Binding != h.binding || r.Owner != h.owner {
		return unknown(nil)
	}
	if r.NeedsHuman && !h.approved {
		return &sallyport.Error{
			Code: sallyport.Denied, Step: sallyport.Authorize, CallID: h.callID,
			Message: "by now a human must approve this call, and it began without that, so it does not go on",
			Hint:    "make the call again, without requestState",
		}
	}
	h.turn = 0
	h.timer.Stop()
	h.listen(r.Notify)
	select {
	case <-h.done:
		h.c.forget(h)
	default:
	}
	h.hand(r.Answers)
	return nil
}

// hand gives answers to whom they belong. Preconditions: h.mu is held.
func (h *call) hand(brought answers) {
	rest := h.open[:0:0]
	for _, in := range h.open {
		from := brought
		if h.name != "" {
			if from = nil; in.gather(brought) {
				from = in.have
			}
		}
		if a, some := in.answered(from); some {
			in.reply <- a
		} else {
			rest = append(rest, in)
		}
	}
	if h.open = rest; len(rest) > 0 {
		select {
		case h.news <- struct{}{}:
		default:
		}
	}
}

// follow stays with the call until its end, its next questions or the end of ctx,
// which ends the call, too. Who takes tasks stays no longer than until there is one.
func (h *call) follow(ctx context.Context, tasks bool) (sallyport.Result, error) {
	var lasting <-chan struct{}
	if tasks {
		lasting = h.lasting
	}
	for {
		select {
		case <-lasting: // before its questions, which the task then asks
			return h.part(), nil
		default:
		}
		select {
		case <-h.done:
			return h.res, h.err
		case <-ctx.Done():
			h.cancel(context.Cause(ctx))
			<-h.done
			return h.res, h.err
		case <-h.news:
			if res, ok := h.leave(); ok {
				return res, nil
			}
		case <-lasting:
			return h.part(), nil
		}
	}
}

// part gives the client the name of the call to come back with.
func (h *call) part() sallyport.Result {
	h.listen(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	return sallyport.Result{CallID: h.callID, Task: h.name}
}

// leave gives the client what is open, and the state to come back with.
func (h *call) leave() (sallyport.Result, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.open) == 0 {
		return sallyport.Result{}, false // taken back meanwhile
	}
	h.listen(nil)
	h.turns++
	h.turn = h.turns
	until := h.c.o.Now().Add(h.c.o.Wait)
	res := sallyport.Result{CallID: h.callID, State: h.c.states.seal(state{h.c.o.Replica, h.id, h.turn, until}, h.binding)}
	for _, in := range h.open {
		res.Questions = append(res.Questions, in.questions...)
	}
	turn := h.turn
	h.timer = time.AfterFunc(h.c.o.Wait, func() { h.giveUp(turn) })
	return res, true
}

// giveUp ends a call whose client has not come back.
func (h *call) giveUp(turn uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.turn == turn {
		h.turn = 0
		h.cancel(&sallyport.Cancellation{By: "unanswered"})
		h.c.forget(h)
	}
}

// end notes the outcome. Where the client is away, it stays for when it comes back.
func (h *call) end(res sallyport.Result, err error) {
	h.res, h.err = res, err
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(h.done) // who hears of the end finds the place free
	if h.turn == 0 {
		h.c.forget(h)
	}
}
