package saga_test

import (
	"errors"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
)

func (h *house) admins(all ...sallyport.Admin) {
	h.t.Helper()
	for _, a := range all {
		a.Tenant = "t"
		e, err := audit.AdminEntry("t", sallyport.Change{Action: "admins add", By: "init", Target: a.Name})
		if err == nil {
			err = h.db.PutAdmin(h.t.Context(), a, e)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *house) vote(ticket, by string, groups ...string) {
	h.t.Helper()
	if _, err := h.db.Decide(h.t.Context(), "t", sallyport.Decision{Ticket: ticket, Approve: true, By: by, Groups: groups}, 0); err != nil {
		h.t.Fatal(err)
	}
}

// approved starts a plan that two of finance have approved, and stops in its
// first step, which ends when the channel is closed.
func (h *house) approved(text string) (id string, goOn chan struct{}) {
	h.t.Helper()
	h.admins(sallyport.Admin{Name: "fay", Groups: []string{"finance"}}, sallyport.Admin{Name: "flo", Groups: []string{"finance"}})
	b := h.block("do a")
	req := h.request(text)
	_, err := h.front.Call(h.t.Context(), req)
	e, ours := errors.AsType[*sallyport.Error](err)
	if !ours || e.Code != sallyport.Pending {
		h.t.Fatalf("nobody was asked: %v", err)
	}
	h.vote(e.Ticket, "fay", "finance")
	h.vote(e.Ticket, "flo", "finance")
	req.Ticket = e.Ticket
	res, err := h.front.Call(h.t.Context(), req)
	if err != nil {
		h.t.Fatal(err)
	}
	<-b.reached
	return idIn(h.t, res), b.goOn
}

// What policies demand after a plan was approved is asked for again, step by
// step; what they no longer demand is not.
func TestTO23_StepsOfAnApprovedPlan(t *testing.T) {
	pay := sallyport.Demand{Policy: "pay", Groups: []string{"finance"}, Quorum: 2}
	with := func(change func(*sallyport.Demand)) []sallyport.Demand {
		d := pay
		change(&d)
		return []sallyport.Demand{d}
	}
	for _, tt := range []struct {
		name  string
		now   []sallyport.Demand
		alter func(*house)
		asked bool
	}{
		{name: "as it was", now: []sallyport.Demand{pay}},
		{name: "quorum lowered", now: with(func(d *sallyport.Demand) { d.Quorum = 1 })},
		{name: "policy removed"},
		{name: "another group may speak, too", now: with(func(d *sallyport.Demand) { d.Groups = []string{"finance", "legal"} })},
		{name: "any admin will do", now: with(func(d *sallyport.Demand) { d.Groups = nil })},
		{name: "quorum raised", now: with(func(d *sallyport.Demand) { d.Quorum = 3 }), asked: true},
		{name: "another group", now: with(func(d *sallyport.Demand) { d.Groups = []string{"security"} }), asked: true},
		{name: "policy added", now: []sallyport.Demand{pay, {Policy: "more"}}, asked: true},
		{name: "policy renamed", now: with(func(d *sallyport.Demand) { d.Policy = "pay2" }), asked: true},
		{name: "an approver is no admin any more", now: []sallyport.Demand{pay}, asked: true, alter: func(h *house) {
			e, err := audit.AdminEntry("t", sallyport.Change{Action: "admins remove", By: "init", Target: "flo"})
			if err == nil {
				err = h.db.DeleteAdmin(h.t.Context(), "t", "flo", e)
			}
			if err != nil {
				h.t.Error(err)
			}
		}},
		{name: "an approver left the group", now: []sallyport.Demand{pay}, asked: true, alter: func(h *house) {
			h.admins(sallyport.Admin{Name: "flo", Groups: []string{"guests"}})
		}},
		{name: "a saga of an older gateway, which kept no demands", now: []sallyport.Demand{pay}, asked: true, alter: func(h *house) {
			all, err := h.db.Sagas(h.t.Context(), store.SagaFilter{Tenant: "t"})
			if err != nil || len(all) != 1 {
				h.t.Fatalf("%d sagas, %v", len(all), err)
			}
			s := h.get(all[0].ID)
			s.Demands = nil
			e, err := audit.NewEntry("t", sallyport.EntrySaga, s.CallID, map[string]string{})
			if err == nil {
				_, err = h.db.Store.MoveSaga(h.t.Context(), store.SagaMove{Saga: s, Entry: e})
			}
			if err != nil {
				h.t.Error(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.perm.Demands = []sallyport.Demand{pay}
			h := w.live(0, false)
			defer h.end()
			id, goOn := h.approved(planOf("a", "b"))
			w.mu.Lock()
			w.perm.Demands = tt.now
			w.mu.Unlock()
			if tt.alter != nil {
				tt.alter(h)
			}
			close(goOn)
			if !tt.asked {
				h.until(id, sallyport.SagaSucceeded)
				w.want("do a", "do b")
				return
			}
			s := h.until(id, sallyport.SagaAwaiting)
			w.want("do a")
			tk, err := h.db.Ticket(t.Context(), "t", h.waitsFor(s))
			if err != nil || tk.Binding.Tool != "do" || !strings.Contains(string(tk.Binding.Args), `"b"`) || len(tk.Demands) != len(tt.now) {
				t.Errorf("%v %+v asks %v", err, tk.Binding, tk.Demands)
			}
		})
	}
}

// A step that was asked for by itself keeps its own question: a policy that
// becomes looser meanwhile neither answers nor loses it.
func TestTO23_LooserWhileAStepWaits(t *testing.T) {
	for approve, want := range map[bool]sallyport.SagaState{true: sallyport.SagaSucceeded, false: sallyport.SagaCompensated} {
		w := newWorld(t)
		pay := sallyport.Demand{Policy: "pay", Groups: []string{"finance"}, Quorum: 2}
		w.perm.Demands = []sallyport.Demand{pay}
		h := w.live(0, false)
		id, goOn := h.approved(planOf("a", "b"))
		demand := func(all ...sallyport.Demand) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.perm.Demands = all
		}
		demand(pay, sallyport.Demand{Policy: "more"})
		close(goOn)
		ticket := h.waitsFor(h.until(id, sallyport.SagaAwaiting))
		demand(pay)
		if approve {
			h.vote(ticket, "fay", "finance")
			h.vote(ticket, "flo", "finance")
		} else {
			h.decide(ticket, false)
		}
		h.until(id, want)
		if approve {
			w.want("do a", "do b")
		} else {
			w.want("do a", "undo a")
		}
		h.end()
	}
}

// A step's outcome is known to its saga even where its driver is interrupted
// between the two, and policies ask for more, or refuse, when it looks again.
func TestTO23_OutcomeAfterAChange(t *testing.T) {
	for name, now := range map[string]gateway.Verdict{
		"a human is asked for": {Allow: true, Demands: []sallyport.Demand{{Policy: "more"}}},
		"nobody may call it":   {Reasons: []string{"no policy allows this"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.block("do a")
			h := w.live(0, false)
			defer h.end()
			id := h.start(planOf("a"))
			<-b.reached
			h.change(id, "pause", "")
			w.mu.Lock()
			w.perm = now
			w.mu.Unlock()
			h.change(id, "resume", "")
			close(b.goOn)
			h.until(id, sallyport.SagaSucceeded)
			w.want("do a")
		})
	}
}
