package upstream

import (
	"fmt"
	"testing"

	"sallyport.dev/sallyport"
)

func lazyProgram(t *testing.T) *server {
	o := &Options{}
	o.fill()
	s := prepare(Config{Name: "s", Argv: []string{"x"}, Lazy: true}, o)
	s.begin(t.Context())
	t.Cleanup(s.stop)
	return s
}

// One tenant's callers, however many, leave processes of a program for the others; those
// that nobody uses make room, the caller's own agent's first.
func TestProcessesAreShared(t *testing.T) {
	t.Parallel()
	s := lazyProgram(t)
	n := 0
	use := func(tenant, agent string) bool { // one more user of an agent's has a call there
		n++
		own, err := s.owns.take(s, fmt.Sprint(n), sallyport.Principal{Tenant: tenant, ID: agent, OnBehalfOf: fmt.Sprint(n)}, nil)
		if err != nil {
			if sallyport.CodeOf(err) != sallyport.RateLimited {
				t.Fatal(err)
			}
			return false
		}
		if _, err := own.line.Enter(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	fill := func(tenant, agent string) (has int) {
		for use(tenant, agent) {
			has++
		}
		return has
	}
	if has := fill("t1", "a"); has != 21 {
		t.Errorf("an agent has %d", has)
	}
	for i := range 40 {
		fill("t1", fmt.Sprint("more", i))
	}
	if has := len(s.owns.all); has != 32 {
		t.Errorf("a tenant has %d", has)
	}
	first := fmt.Sprint(n + 1)
	if has := fill("t2", "a"); has < 5 {
		t.Errorf("another tenant has %d", has)
	}
	before := len(s.owns.all)
	s.owns.all["1"].line, s.owns.all[first].line = s.line, s.line // empty: these calls of t1's and t2's have ended
	if !use("t2", "a") || len(s.owns.all) != before || s.owns.all[first] != nil || s.owns.all["1"] == nil {
		t.Error("what nobody uses does not make room, its own first")
	}
}

// Who has a share already, and wants more, takes away no process that another uses now and
// then, whether it would help or not: what that holds would be lost. Who has less than
// another may.
func TestOnesShareCostsNobodyHis(t *testing.T) {
	t.Parallel()
	s := lazyProgram(t)
	n := 0
	hold := func(who sallyport.Principal, inUse bool) bool {
		n++
		who.OnBehalfOf = fmt.Sprint(n)
		own, err := s.owns.take(s, fmt.Sprint(n), who, nil)
		if err != nil {
			return false
		}
		own.set(func() { own.state = StateReady }) // it runs
		if inUse {
			if _, err := own.line.Enter(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		return true
	}
	of := func(tenant string) int64 { has, _ := s.owns.shares.Has(tenant, ""); return has }
	quiet := sallyport.Principal{Tenant: "quiet", ID: "a"}
	for range 12 {
		hold(quiet, false)
	}
	for i := range 60 {
		for hold(sallyport.Principal{Tenant: "greedy", ID: fmt.Sprint(i)}, true) {
		}
	}
	if of("quiet") != 12 || of("greedy") < 20 {
		t.Errorf("the quiet one keeps %d of 12 beside %d", of("quiet"), of("greedy"))
	}
	free := 64 - of("quiet") - of("greedy")
	for i := range free + 4 {
		if !hold(sallyport.Principal{Tenant: fmt.Sprint("other", i), ID: "a"}, true) {
			t.Errorf("another, with nothing yet, gets nothing: %d", i)
		}
	}
	if of("quiet") != 8 {
		t.Errorf("four who have nothing take %d of 12", 12-of("quiet"))
	}
}
