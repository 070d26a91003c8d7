package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
)

// TO-23: whatever changes between the question and the execution, today
// decides: what is stricter makes the approval void, what is looser approves
// nothing. Once void it stays so, also when the change is taken back.
func TestTO23_ChangedWhilePending(t *testing.T) {
	finance := gateway.Verdict{Allow: true, Demands: []sallyport.Demand{{Policy: "pay", Groups: []string{"finance"}}}}
	give := func(v gateway.Verdict) func(gateway.Question) gateway.Verdict {
		return func(gateway.Question) gateway.Verdict { return v }
	}
	for name, tt := range map[string]struct {
		change func(*stand)
		code   sallyport.Code // "" where it runs
		why    string         // in the void ticket
	}{
		"nothing": {func(*stand) {}, "", ""},
		"a policy asks for two": {func(s *stand) {
			s.verdict = give(gateway.Verdict{Allow: true, Demands: []sallyport.Demand{{Policy: "pay", Groups: []string{"finance"}, Quorum: 2}}})
		}, sallyport.Conflict, "2 of finance"},
		"a policy asks others": {func(s *stand) {
			s.verdict = give(gateway.Verdict{Allow: true, Demands: append(finance.Demands, sallyport.Demand{Policy: "new", Groups: []string{"security"}})})
		}, sallyport.Conflict, "1 of security (new)"},
		"calls that cannot be undone need more": {func(s *stand) { s.Irreversible = sallyport.Demand{Groups: []string{"security"}} }, sallyport.Conflict, "1 of security"},
		"a policy denies":                       {func(s *stand) { s.verdict = give(gateway.Verdict{Reasons: []string{"closed"}}) }, sallyport.Denied, "closed"},
		"a role is lost":                        {func(s *stand) { s.who.Roles = nil }, sallyport.Denied, "not a payer"},
		"a policy asks for nobody":              {func(s *stand) { s.verdict = give(gateway.Verdict{Allow: true}) }, "", ""},
		"the tool's definition":                 {func(s *stand) { s.tool("pay", func(t *sallyport.Tool) { t.Digest = "d2" }) }, sallyport.Conflict, "tool_digest"},
		"the tool's version":                    {func(s *stand) { s.tool("pay", func(t *sallyport.Tool) { t.Version = "2" }) }, sallyport.Conflict, `tool_version: "2", was "1"`},
		"the tool is quarantined":               {func(s *stand) { s.tool("pay", func(t *sallyport.Tool) { t.Status = sallyport.ToolQuarantined }) }, sallyport.Quarantined, "quarantined"},
		"the tool is gone":                      {func(s *stand) { delete(s.tools, "pay") }, sallyport.NotFound, "unknown tool"},
		"an approver is removed":                {func(s *stand) { _ = s.db.DeleteAdmin(context.Background(), "t", "ann", s.entry()) }, sallyport.Conflict, "ann may no longer"},
		"an approver leaves the group": {func(s *stand) {
			_ = s.db.PutAdmin(context.Background(), sallyport.Admin{Tenant: "t", Name: "ann"}, s.entry())
		}, sallyport.Conflict, "ann may no longer"},
		"the agent was suspended": {func(s *stand) {
			for _, state := range []string{"suspended", "active"} {
				_ = s.db.SetAgentState(context.Background(), "t", "agent", state, time.Time{}, s.entry())
			}
		}, sallyport.Rejected, "suspended"},
	} {
		for _, how := range []string{"by ticket", "by key", "by key for a user"} {
			t.Run(name+", "+how, func(t *testing.T) {
				keyed := how != "by ticket"
				s := newStand(t, store.TicketRules{})
				if how == "by key for a user" {
					s.who.OnBehalfOf = "carol"
				}
				normal := func(q gateway.Question) gateway.Verdict {
					if !slices.Contains(q.Who.Roles, "payer") {
						return gateway.Verdict{Reasons: []string{"not a payer"}}
					}
					return finance
				}
				s.verdict = normal
				req := request("pay", `{"to":"A"}`)
				if keyed {
					req.Key = "k"
				}
				resume, id := s.pend(t, req)
				if keyed {
					resume.Ticket = ""
				}
				s.approve(t, id, "ann")
				tools, who := s.tools["pay"], s.who
				tt.change(s)
				_, err := s.Call(t.Context(), resume)
				if tt.code == "" {
					if err != nil || len(s.ran) != 1 {
						t.Fatalf("%v, ran %d", err, len(s.ran))
					}
					return
				}
				if sallyport.CodeOf(err) != tt.code || len(s.ran) != 0 {
					t.Fatalf("%v, ran %d; want %s", err, len(s.ran), tt.code)
				}
				tk := s.state(t, id)
				if tk.State != sallyport.TicketVoid || !strings.Contains(tk.VoidReason, tt.why) {
					t.Errorf("the ticket is %s: %q; want void: %q", tk.State, tk.VoidReason, tt.why)
				}
				if plain, _, _ := strings.Cut(tt.why, `"`); s.onRecord(t, strings.TrimSpace(plain)) == 0 {
					t.Error("the reason is not on record")
				}
				s.verdict, s.who, s.tools["pay"], s.Irreversible = normal, who, tools, sallyport.Demand{} // taken back
				s.admins(t, "ann", "finance")
				if _, err := s.Call(t.Context(), resume); sallyport.CodeOf(err) != sallyport.Rejected || len(s.ran) != 0 {
					t.Errorf("once the change is taken back: %v, ran %d", err, len(s.ran))
				}
			})
		}
	}
}

// A tool whose server has not told its tools yet, as after a start, is not gone:
// the approval waits for it.
func TestTO23_ServerHasNotToldItsToolsYet(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		s := newStand(t, store.TicketRules{})
		req := request("pay", `{"to":"A"}`)
		if keyed {
			req.Key = "k"
		}
		resume, id := s.pend(t, req)
		if keyed {
			resume.Ticket = ""
		}
		s.approve(t, id, "ann")
		tool := s.tools["pay"]
		delete(s.tools, "pay")
		s.starting = true
		_, err := s.Call(t.Context(), resume)
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Code != sallyport.Unavailable || e.RetryAfter == 0 || len(s.ran) != 0 {
			t.Fatalf("keyed %t: %v, ran %d", keyed, err, len(s.ran))
		}
		tell := func() { s.tools["pay"], s.starting, s.gen = tool, false, s.gen+1 }
		s.telling = tell // in the middle of a call that did not find it
		_, err = s.Call(t.Context(), resume)
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Code != sallyport.Unavailable || s.starting || len(s.ran) != 0 {
			t.Fatalf("keyed %t, as it does: %v, starting %t, ran %d", keyed, err, s.starting, len(s.ran))
		}
		if _, err := s.Call(t.Context(), resume); err != nil || len(s.ran) != 1 {
			t.Errorf("keyed %t, once it has: %v, ran %d", keyed, err, len(s.ran))
		}
	}
}

// A looser policy answers no question that humans have before them; a new call
// is judged by it.
func TestTO23_LooserPolicyApprovesNothing(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	s.risk = func(sallyport.Tool, json.RawMessage) sallyport.Risk { return sallyport.Risk{Level: sallyport.High} }
	s.verdict = func(gateway.Question) gateway.Verdict {
		return gateway.Verdict{Allow: true, Demands: []sallyport.Demand{{Policy: "two", Quorum: 2}}}
	}
	req := request("pay", `{}`)
	req.Key = "k"
	resume, id := s.pend(t, req)
	s.approve(t, id, "ann")
	s.verdict = func(gateway.Question) gateway.Verdict { return gateway.Verdict{Allow: true} }
	for _, again := range []sallyport.Request{req, resume} {
		if _, got := s.pend(t, again); got != id {
			t.Errorf("asked again: %s, want %s", got, id)
		}
	}
	if tk := s.state(t, id); tk.State != sallyport.TicketPending || len(s.ran) != 0 {
		t.Errorf("the ticket is %s, ran %d", tk.State, len(s.ran))
	}
	if _, err := s.Call(t.Context(), request("pay", `{}`)); err != nil || len(s.ran) != 1 {
		t.Errorf("a new call: %v, ran %d", err, len(s.ran))
	}
	s.approve(t, id, "bob")
	if _, err := s.Call(t.Context(), req); err != nil || len(s.ran) != 2 {
		t.Errorf("once both have approved: %v, ran %d", err, len(s.ran))
	}
}
