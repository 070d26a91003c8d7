package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
)

// world is what lies behind names: files and pages.
type world struct {
	mu      sync.Mutex
	content map[string]string
	broken  bool
	looks   int
}

func (w *world) set(name, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.content[name] = text
}

// witnessed is a stand whose tool pay sends what a path or URL names, and
// whose tool read looks at it.
func witnessed(t *testing.T) (*stand, *world) {
	s := newStand(t, store.TicketRules{})
	w := &world{content: map[string]string{"/srv/pay.csv": "A,82000", "https://x.test/p": "page"}}
	s.tool("read", func(t *sallyport.Tool) { t.Manifest.ReadOnly = true })
	s.tool("pay", func(t *sallyport.Tool) {
		t.Manifest.Fields = []sallyport.RiskField{{Path: "/file", Kind: "path"}, {Path: "/page", Kind: "url"}, {Path: "/ref", Kind: "reference"}}
		t.Manifest.Witness = []sallyport.Witness{
			{Name: "the file", Tool: "read", Args: json.RawMessage(`{"name":{"$arg":"/file"}}`), Select: "/structuredContent/text", Binds: "/file"},
			{Name: "the page", Tool: "read", Args: json.RawMessage(`{"name":{"$arg":"/page"},"opts":[{"$arg":"/n"}]}`), Select: "/structuredContent", Binds: "/page"},
		}
	})
	s.run = func(_ context.Context, j sallyport.Job) (sallyport.Output, error) {
		if j.Tool.Name != "read" {
			return sallyport.Output{Content: json.RawMessage(`{"content":[]}`)}, nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.looks++
		if w.broken {
			return sallyport.Output{}, errors.New("no route to host")
		}
		var in struct{ Name string }
		if err := json.Unmarshal(j.Args, &in); err != nil {
			return sallyport.Output{}, err
		}
		text, there := w.content[in.Name]
		b, err := json.Marshal(map[string]any{"structuredContent": map[string]string{"text": text}, "volatile": w.looks})
		return sallyport.Output{Content: b, IsError: !there}, err
	}
	return s, w
}

const sent = `{"amount":82000,"deep":{"list":[1,{"k":"v"}]},"file":"/srv/pay.csv","n":1.0,"page":"https://x.test/p","ref":"doc-7","to":"A"}`

// TO-22: only the canonical bytes that were approved run, and only while what
// they refer to is as it was.
func TestTO22_ChangedBetweenApprovalAndExecution(t *testing.T) {
	replace := func(old, with string) func(*stand, *world, *sallyport.Request) {
		return func(_ *stand, _ *world, r *sallyport.Request) {
			r.Operation.Args = json.RawMessage(strings.Replace(sent, old, with, 1))
		}
	}
	for name, tt := range map[string]struct {
		change func(*stand, *world, *sallyport.Request)
		code   sallyport.Code
		why    string // where the approval is void for good
	}{
		"nothing":             {func(*stand, *world, *sallyport.Request) {}, "", ""},
		"written differently": {replace(`{"amount":82000,"deep"`, " {\t\"amount\" : 82000,\"deep\""), "", ""},
		"ten times":           {replace("82000", "820000"), sallyport.Conflict, ""},
		"82000.0":             {replace("82000", "82000.0"), sallyport.Conflict, ""},
		"a string":            {replace("82000", `"82000"`), sallyport.Conflict, ""},
		"8.2e4":               {replace("82000", "8.2e4"), sallyport.Conflict, ""},
		"trailing space":      {replace(`"A"`, `"A "`), sallyport.Conflict, ""},
		"extra field":         {replace(`"to"`, `"currency":"JPY","to"`), sallyport.Conflict, ""},
		"missing field":       {replace(`,"to":"A"`, ""), sallyport.Conflict, ""},
		"a default spelt out": {replace(`"to"`, `"currency":"EUR","to"`), sallyport.Conflict, ""},
		"nested change":       {replace(`"v"`, `"w"`), sallyport.Conflict, ""},
		"another file":        {replace("/srv/pay.csv", "/srv/pay2.csv"), sallyport.Conflict, ""},
		"the file's content": {func(_ *stand, w *world, _ *sallyport.Request) { w.set("/srv/pay.csv", "A,820000") }, sallyport.Conflict,
			`the file has changed since the ticket was opened: "A,82000" → "A,820000"`},
		"the page's content": {func(_ *stand, w *world, _ *sallyport.Request) { w.set("https://x.test/p", "another") }, sallyport.Conflict,
			`the page has changed`},
		"a far change in a long file": {func(_ *stand, w *world, _ *sallyport.Request) {
			w.set("/srv/pay.csv", strings.Repeat("A,82000\n", 1000)+"x")
		}, sallyport.Conflict, "the file has changed"},
		"the file is gone": {func(_ *stand, w *world, _ *sallyport.Request) { delete(w.content, "/srv/pay.csv") }, sallyport.Unavailable, ""},
		"nobody can look":  {func(_ *stand, w *world, _ *sallyport.Request) { w.broken = true }, sallyport.Unavailable, ""},
		"fewer are to look": {func(s *stand, _ *world, _ *sallyport.Request) {
			s.tool("pay", func(t *sallyport.Tool) { t.Manifest.Witness = t.Manifest.Witness[:1] })
		}, sallyport.Conflict, "other witnesses"},
		"the looking tool writes now": {func(s *stand, _ *world, _ *sallyport.Request) {
			s.tool("read", func(t *sallyport.Tool) { t.Manifest.ReadOnly = false })
		},
			sallyport.Unavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := witnessed(t)
			resume, id := s.pend(t, request("pay", sent))
			s.approve(t, id, "ann")
			tt.change(s, w, &resume)
			_, err := s.Call(t.Context(), resume)
			if tt.code == "" {
				if err != nil || len(s.ran) != 1 || string(s.ran[0].Args) != sent {
					t.Fatalf("%v, ran %+v", err, s.ran)
				}
				return
			}
			if sallyport.CodeOf(err) != tt.code || len(s.ran) != 0 {
				t.Fatalf("%v, ran %d; want %s", err, len(s.ran), tt.code)
			}
			tk := s.state(t, id)
			if tt.why == "" && tk.State != sallyport.TicketApproved || tt.why != "" && (tk.State != sallyport.TicketVoid || !strings.Contains(tk.VoidReason, tt.why)) {
				t.Errorf("the ticket is %s: %q", tk.State, tk.VoidReason)
			}
			if tt.why != "" && !strings.Contains(err.Error(), tt.why) {
				t.Errorf("the caller is not told: %v", err)
			}
		})
	}
}

// A ticket says what was seen, and which content nobody has seen.
func TestWitnessInTicket(t *testing.T) {
	s, w := witnessed(t)
	resume, id := s.pend(t, request("pay", sent))
	looks := w.looks
	s.pend(t, resume)
	if w.looks != looks {
		t.Error("a pending ticket is looked at again: an agent that polls makes the target work")
	}
	tk := s.state(t, id)
	if len(tk.Binding.Witness) != 2 || tk.Binding.Witness[0].Value != `"A,82000"` || tk.Binding.Witness[0].Binds != "/file" || len(tk.Binding.Witness[0].Hash) != 64 {
		t.Errorf("%+v", tk.Binding.Witness)
	}
	if fmt.Sprint(tk.Unbound) != "[/ref]" {
		t.Errorf("unbound: %v, want /ref", tk.Unbound)
	}
	if s.onRecord(t, `"the file"`) < 2 { // the look and the ticket
		t.Error("the look is not on record")
	}
	w.broken = true
	if _, err := s.Call(t.Context(), request("pay", sent)); sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), "the file") {
		t.Errorf("no witness, no ticket: %v", err)
	}
	w.broken = false
	if _, err := s.Call(t.Context(), request("pay", `{"file":"/srv/pay.csv"}`)); sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), "no argument /page") {
		t.Errorf("a witness without its argument: %v", err)
	}
	s.verdict = func(q gateway.Question) gateway.Verdict { return gateway.Verdict{Allow: q.Tool.Name != "read"} }
	if _, err := s.Call(t.Context(), request("pay", sent)); sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), "policies do not let agent call read") {
		t.Errorf("a witness that the caller may not call: %v", err)
	}
}

// An approval is for one tier: that which was chosen when the ticket was opened. A
// host that lacks it by now leads to another choice, and to a new ticket.
func TestTierChangedAfterApproval(t *testing.T) {
	for _, tiers := range [][]string{{"gvisor", "microvm"}, {"gvisor"}} {
		s, _ := witnessed(t)
		s.tool("pay", func(t *sallyport.Tool) {
			t.Code, t.Manifest.Tiers = &sallyport.Script{Language: "python", Source: "pay()"}, tiers
		})
		resume, id := s.pend(t, request("pay", sent))
		if tk := s.approve(t, id, "ann"); tk.Binding.Tier != "gvisor" {
			t.Fatalf("%+v", tk.Binding)
		}
		s.Lack = func(_ context.Context, tier string) error {
			if tier == "gvisor" {
				return errors.New("its kernel is gone")
			}
			return nil
		}
		want := sallyport.Conflict
		if len(tiers) == 1 {
			want = sallyport.Unavailable
		}
		if _, err := s.Call(t.Context(), resume); sallyport.CodeOf(err) != want || len(s.ran) != 0 {
			t.Errorf("%v: %v, ran %d", tiers, err, len(s.ran))
		}
	}
}

// An approval is for one binding. Each field of it, changed in the world after
// the approval, refuses the call. A field without a case here fails.
func TestBindingChangedAfterApproval(t *testing.T) {
	tool := func(edit func(*sallyport.Tool)) func(*stand, *world, *sallyport.Request) {
		return func(s *stand, _ *world, _ *sallyport.Request) { s.tool("pay", edit) }
	}
	cases := map[string]func(*stand, *world, *sallyport.Request){
		"Tenant":      func(s *stand, _ *world, _ *sallyport.Request) { s.who.Tenant = "u" },
		"Principal":   func(s *stand, _ *world, _ *sallyport.Request) { s.who.ID = "eve" },
		"OnBehalfOf":  func(s *stand, _ *world, _ *sallyport.Request) { s.who.OnBehalfOf = "eve" },
		"Profile":     func(_ *stand, _ *world, r *sallyport.Request) { r.Profile = "other" },
		"Tool":        func(s *stand, _ *world, r *sallyport.Request) { s.tool("pay2"); r.Operation.Target = "pay2" },
		"ToolVersion": tool(func(t *sallyport.Tool) { t.Version = "2" }),
		"ToolDigest":  tool(func(t *sallyport.Tool) { t.Digest = "x" }),
		"Args":        func(_ *stand, _ *world, r *sallyport.Request) { r.Operation.Args = json.RawMessage(`{}`) },
		"Endpoint":    tool(func(t *sallyport.Tool) { t.Origin.Endpoint = "https://evil.test" }),
		"Credential":  tool(func(t *sallyport.Tool) { t.Origin.Credential = "root" }),
		"Image":       func(s *stand, _ *world, _ *sallyport.Request) { s.Image = "another" },
		"Tier":        tool(func(t *sallyport.Tool) { t.Manifest.Tiers = []string{"microvm"} }),
		"Egress":      tool(func(t *sallyport.Tool) { t.Manifest.Egress = []string{"evil.test:443"} }),
		"Witness":     func(_ *stand, w *world, _ *sallyport.Request) { w.set("/srv/pay.csv", "other") },
		"Saga":        nil, // test/conformance: a call stays in the saga that it was made in
		"Plan":        nil, // no path sets it yet but a saga's; the ledger's hash covers it, see below
	}
	typ := reflect.TypeFor[sallyport.Binding]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		change, there := cases[name]
		if !there {
			t.Errorf("Binding.%s has no case: what happens when it changes after an approval?", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			s, w := witnessed(t)
			s.tool("pay", func(t *sallyport.Tool) {
				t.Code = &sallyport.Script{Language: "python", Source: "pay()"}
				t.Manifest.Tiers, t.Manifest.Egress = []string{"gvisor"}, []string{"pay.test:443"}
			})
			resume, id := s.pend(t, request("pay", sent))
			tk := s.approve(t, id, "ann")
			if change != nil {
				change(s, w, &resume)
				if _, err := s.Call(t.Context(), resume); err == nil || len(s.ran) != 0 {
					t.Fatalf("%v, ran %d", err, len(s.ran))
				}
			}
			// The ledger itself refuses a hash of anything else, whatever the path does.
			tk2 := tk
			if f := reflect.ValueOf(&tk2.Binding).Elem().Field(i); f.Kind() == reflect.String {
				f.SetString(f.String() + "x")
			} else {
				f.SetZero()
			}
			_, err := s.db.Begin(t.Context(), gateway.Begin{
				Key:         sallyport.ReservationKey{Tenant: "t", Principal: "agent", Tool: "pay", Key: tk.Key},
				Fingerprint: fingerprintOf(t, s, tk), Ticket: id, TicketHash: tk2.Binding.Hash(), Lease: time.Minute, Intent: s.entry(),
			})
			if err == nil {
				t.Error("the ledger began another call")
			}
		})
	}
	// The control: unchanged, it runs.
	s, _ := witnessed(t)
	resume, id := s.pend(t, request("pay", sent))
	s.approve(t, id, "ann")
	if _, err := s.Call(t.Context(), resume); err != nil || len(s.ran) != 1 {
		t.Errorf("unchanged: %v, ran %d", err, len(s.ran))
	}
}

func fingerprintOf(t *testing.T, s *stand, tk sallyport.Ticket) string {
	t.Helper()
	r, err := s.db.Find(t.Context(), sallyport.ReservationKey{Tenant: "t", Principal: "agent", Tool: "pay", Key: tk.Key})
	if err != nil || r == nil {
		t.Fatalf("no reservation: %v", err)
	}
	return r.Fingerprint
}
