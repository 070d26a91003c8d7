package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// besieged are two gateways on one database, with the defaults of a careful
// operator, an agent of its own for each attack, and admins in groups.
func besieged(t *testing.T) *pair {
	t.Helper()
	p := newPairWith(t, "approvals: {cooldown: 5m, per_agent: 5, wait: 1ms}\n")
	for _, g := range p.g {
		g.Write("tools/a_pay.yaml", "server: a\ntool: pay\nfields: [{path: /file, kind: path, effect: writes}]\n")
		g.Write("policies/quorum.cedar", `@id("two") @approval("required") @approvers("finance") @quorum("2")
forbid (principal, action == Action::"call", resource == Tool::"a__transfer") when { context.args has two };`)
		g.Must("", "policy", "reload")
	}
	return p
}

// as is a client of gateway i for an agent that is made here.
func (p *pair) as(t *testing.T, i int, agent string) raw {
	t.Helper()
	if r := p.g[0].Run("", "agents", "add", agent); r.Code != 0 && !strings.Contains(r.Err, "exists") {
		t.Fatal(r)
	}
	cmd := p.g[i].Command(t.Context(), "token", "--agent", agent)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // nobody is logged in there, so nobody stands behind the token
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return raw{url: p.g[i].URL + "/mcp", token: strings.TrimSpace(string(out))}
}

func TestAttacksOnApprovals(t *testing.T) {
	t.Parallel()
	p := besieged(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *pair)
	}{
		{"TO27_RejectedInAnotherForm", rejectedInAnotherForm},
		{"TO28_FloodAtBothDoors", floodAtBothDoors},
		{"TO36_AnothersTicket", anothersTicket},
		{"TO23_SuspendedWhileApproved", suspendedWhileApproved},
		{"SelfApproval", selfApproval},
		{"OneHumanForTwo", oneHumanForTwo},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, g := range p.g {
				g.In(t)
			}
			c.test(t, p)
		})
	}
	p.verify(t)
}

// What one gateway's human rejected, no form of it runs or is asked for at the
// other, by another key or tool.
func rejectedInAnotherForm(t *testing.T, p *pair) {
	c := [2]raw{p.as(t, 0, "evader"), p.as(t, 1, "evader")}
	id := ticketFor(t, c[0], "a__transfer", `{"n":1,"to":"x","text":"é"}`, keyed("k"))
	p.g[0].Must("", "approvals", "reject", id, "--reason", "no")
	for i, args := range []string{`{"n":1,"to":"x","text":"é"}`, `{"text":"é","to":"x","n":1}`, `{"n":1.0,"to":"x","text":"é"}`, `{"n":1e0,"to":"x","text":"é"}`,
		`{"n":1,"to":"\u0078","text":"\u00e9"}`, `{"n":1,"to":"x","text":"é"}`, `{"n":1,"to":"ｘ","text":"é"}`, `{"n":1,"to":"x ","text":"é"}`, ` { "n" : 1 , "to":"x","text":"é"}`} {
		for _, meta := range []string{"", keyed("k"), keyed(fmt.Sprint("k", i)), ticketed(id)} {
			if a := c[(i+1)%2].must(t, "a__transfer", args, meta); a.Code != "rejected" && a.Code != "conflict" {
				t.Errorf("%s with %q: %s", args, meta, a)
			}
		}
	}
	if got := p.ledger.Lines(); len(got) != 0 {
		t.Errorf("executed: %q", got)
	}
}

// Fifty questions at once at two gateways open no more tickets than one agent
// may have.
func floodAtBothDoors(t *testing.T, p *pair) {
	c := [2]raw{p.as(t, 0, "flooder"), p.as(t, 1, "flooder")}
	codes := make(chan string, 50)
	for i := range 50 {
		go func() {
			a, err := c[i%2].call("1", "a__transfer", fmt.Sprintf(`{"n":%d,"to":"flood"}`, i), "")
			if err != nil {
				a.Code = err.Error()
			}
			codes <- a.Code
		}()
	}
	count := map[string]int{}
	for range 50 {
		count[<-codes]++
	}
	if count["approval_pending"] != 5 || count["rate_limited"] != 45 {
		t.Errorf("%v, want 5 tickets and 45 refusals", count)
	}
}

// A ticket is of no use to another agent, at any gateway, in any state.
func anothersTicket(t *testing.T, p *pair) {
	mine, theirs := p.as(t, 0, "owner"), p.as(t, 1, "thief")
	args := `{"n":2,"to":"mine"}`
	id := ticketFor(t, mine, "a__transfer", args, keyed("mine"))
	steal := func(when string) {
		t.Helper()
		if a := theirs.must(t, "a__transfer", args, ticketed(id)); a.Code != "not_found" {
			t.Errorf("%s, resumed by another: %s", when, a)
		}
		if a := theirs.must(t, "approval_result", `{"ticket":`+str(id)+`}`, ""); a.Error == nil || !strings.Contains(a.Error.Message, "unknown ticket") {
			t.Errorf("%s, asked for by another: %s", when, a)
		}
	}
	steal("pending")
	p.g[0].Must("", "approvals", "approve", id)
	steal("approved")
	if a := mine.must(t, "a__transfer", args, ticketed(id)); !strings.Contains(a.Text, "paid") {
		t.Errorf("its own: %s", a)
	}
	steal("used")
	if n := p.ledger.Count(args); n != 1 {
		t.Errorf("executed %d times", n)
	}
}

// An agent that is suspended at one gateway is out at the other, and what was
// approved for it does not come back with it.
func suspendedWhileApproved(t *testing.T, p *pair) {
	c := p.as(t, 0, "suspect")
	args := `{"n":3,"to":"late"}`
	id := ticketFor(t, c, "a__transfer", args, keyed("late"))
	p.g[0].Must("", "approvals", "approve", id)
	p.g[1].Must("", "agents", "suspend", "suspect") // at the other one
	for _, call := range []string{ticketed(id), ""} {
		tool := map[bool]string{true: "a__pay", false: "a__transfer"}[call == ""]
		if a, err := c.call("1", tool, args, call); err == nil && a.Code != "rejected" && a.Code != "unauthenticated" && a.Error == nil {
			t.Errorf("suspended, %s: %s", tool, a)
		}
	}
	p.g[1].Must("", "agents", "resume", "suspect")
	c = p.as(t, 0, "suspect")
	var a answer
	p.g[0].Eventually(stage.Patience, "it is let in again", func() error { // the other gateway hears of it a moment later
		if a = c.must(t, "a__transfer", args, ticketed(id)); a.Error != nil {
			return errors.New(a.String())
		}
		return nil
	})
	if a.Code != "rejected" || p.ledger.Count(args) != 0 {
		t.Errorf("back again: %s, executed %d times", a, p.ledger.Count(args))
	}
}

// Who got the agent its token decides nothing about its calls, at no gateway.
func selfApproval(t *testing.T, p *pair) {
	p.as(t, 0, "puppet")
	c := raw{url: p.g[0].URL + "/mcp", token: p.g[0].Token("puppet")} // while admin is logged in
	id := ticketFor(t, c, "a__transfer", `{"n":5,"to":"self"}`, keyed("self"))
	for _, g := range p.g {
		for _, verb := range []string{"approve", "reject"} {
			if r := g.Run("", "approvals", verb, id, "--reason", "mine"); r.Code != 3 || !strings.Contains(r.Err, "stands behind this call") {
				t.Errorf("%s of one's own: %s", verb, r)
			}
		}
	}
	if r := p.g[1].Run("", "admins", "add", "ADMIN"); r.Code != 2 || !strings.Contains(r.Err, `admin "admin" exists`) {
		t.Errorf("a second account that differs in case only: %s", r)
	}
}

// A quorum of two is two people of the group: not one twice, at both gateways,
// not whoever got the agent its token, not somebody who joins the group later.
func oneHumanForTwo(t *testing.T, p *pair) {
	passwords := map[string]string{}
	for i, name := range []string{"fay", "flo", "gus"} {
		groups := [][]string{{"finance"}, {"finance"}, nil}[i]
		passwords[name] = p.g[0].AddAdmin(name, groups...)
	}
	c := p.as(t, 0, "payer")
	args := `{"n":4,"to":"quorum","two":true}`
	id := ticketFor(t, c, "a__transfer", args, keyed("quorum"))
	vote := func(i int, who string, code int) {
		t.Helper()
		p.g[i].LoginAs(who, passwords[who])
		if r := p.g[i].Run("", "approvals", "approve", id); r.Code != code {
			t.Errorf("%s at gateway %d: %s, want exit status %d", who, i, r, code)
		}
	}
	vote(0, "fay", 0)
	vote(1, "fay", 3)
	vote(1, "gus", 3)
	state := func() string {
		var v struct{ State string }
		_ = json.Unmarshal([]byte(p.g[0].Must("", "approvals", "show", id, "--json").Out), &v)
		return v.State
	}
	if s := state(); s != "pending" {
		t.Errorf("one of finance has approved, and it is %s", s)
	}
	vote(1, "flo", 0)
	if s := state(); s != "approved" {
		t.Errorf("two of finance have approved, and it is %s", s)
	}
	p.g[1].LoginAs("admin", p.g[0].Password)
	p.g[1].Must("", "admins", "groups", "flo", "sales")
	if a := c.must(t, "a__transfer", args, ticketed(id)); a.Code != "conflict" || p.ledger.Count(args) != 0 {
		t.Errorf("flo has left finance: %s, executed %d times", a, p.ledger.Count(args))
	}
}
