package gateway

import (
	"context"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// sandboxed makes the world's tool one of code, on a host that lacks some tiers.
func sandboxed(t *testing.T, m sallyport.Manifest, language, source string, lacks ...string) *world {
	w := newWorld(t)
	tool := w.tools["echo"]
	tool.Code, tool.Manifest = &sallyport.Script{Language: language, Source: source}, m
	w.tools["echo"] = tool
	w.Lack = func(_ context.Context, tier string) error {
		if strings.Contains(strings.Join(lacks, " "), tier) {
			return &sallyport.Error{Code: sallyport.Unavailable, Message: "no engine", Hint: "install one"}
		}
		return nil
	}
	return w
}

// The tier that is chosen is what policies are asked about, what runs, and, with
// its reason, what the record says.
func TestTierIsChosen(t *testing.T) {
	for _, tt := range []struct {
		name     string
		manifest sallyport.Manifest
		language string
		args     string
		lacks    string
		tier     string
		reason   string
	}{
		{"nothing said", sallyport.Manifest{}, "python", `{}`, "", "gvisor", "trust agent"},
		{"untrusted", sallyport.Manifest{Trust: "untrusted"}, "python", `{}`, "", "microvm", "trust untrusted"},
		{"light", sallyport.Manifest{Trust: "light"}, "javascript", `{}`, "", "isolate", "trust light"},
		{"up", sallyport.Manifest{Tiers: []string{"gvisor", "microvm"}}, "python", `{}`, "gvisor", "microvm", "no engine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := sandboxed(t, tt.manifest, tt.language, "x", tt.lacks)
			var asked Question
			w.Authorizer = asks(func(q Question) { asked = q })
			if _, err := w.Call(t.Context(), call(tt.args)); err != nil {
				t.Fatal(err)
			}
			r := w.last(t)
			if w.ran[0].Tier != tt.tier || asked.Tier != tt.tier || r.Tier != tt.tier || r.Isolation != tt.tier {
				t.Errorf("ran in %q, asked about %q, recorded %q, %q", w.ran[0].Tier, asked.Tier, r.Tier, r.Isolation)
			}
			if !strings.Contains(r.TierReason, tt.reason) || w.ran[0].TierReason != r.TierReason {
				t.Errorf("%q, %q", r.TierReason, w.ran[0].TierReason)
			}
			if x, err := w.Explain(t.Context(), call(tt.args)); err != nil || x.Tier != tt.tier || x.Why != r.TierReason || x.Refused != nil {
				t.Errorf("%+v, %v", x, err)
			}
		})
	}
}

// asks lets everything through, and tells what it was asked.
type asks func(Question)

func (a asks) Authorize(q Question) (Verdict, error) {
	if q.Action == ActionCall {
		a(q)
	}
	return Verdict{Allow: true}, nil
}
func (asks) Generation() uint64 { return 1 }

// What cannot run is refused in words, never run in a weaker tier, and no human is
// asked about it; who may not call it learns nothing of the host.
func TestTierIsLacking(t *testing.T) {
	w := sandboxed(t, sallyport.Manifest{Trust: "untrusted", Tiers: []string{"gvisor", "microvm"}}, "python", "x", "microvm")
	w.risk.Level = sallyport.Critical
	_, err := w.Call(t.Context(), call(`{}`))
	e, ok := err.(*sallyport.Error)
	if !ok || e.Code != sallyport.Unavailable || e.Step != sallyport.Approve || !strings.Contains(e.Message, "tier microvm cannot run here: no engine") || !strings.Contains(e.Hint, "install one") {
		t.Fatalf("%+v", err)
	}
	if len(w.ran) != 0 || len(w.ledger.tickets) != 0 {
		t.Error("it ran, or a human was asked")
	}
	if r := w.last(t); r.Tier != "microvm" || r.TierReason == "" {
		t.Errorf("%+v", r)
	}
	if x, err := w.Explain(t.Context(), call(`{}`)); err != nil || x.Refused == nil || x.Refused.Code != sallyport.Unavailable || x.Refused.Step != sallyport.Approve {
		t.Errorf("%+v, %v", x, err)
	}
	w.verdict = Verdict{}
	if _, err := w.Call(t.Context(), call(`{}`)); sallyport.CodeOf(err) != sallyport.Denied || strings.Contains(err.Error(), "engine") {
		t.Error(err)
	}
}

// A stored outcome is told, whatever the host lacks by now.
func TestReplayNeedsNoTier(t *testing.T) {
	w := sandboxed(t, sallyport.Manifest{}, "python", "x")
	w.risk.Level = sallyport.High
	req := call(`{}`)
	req.Key = "k1"
	if _, err := w.Call(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	w.Lack = func(context.Context, string) error {
		return &sallyport.Error{Code: sallyport.Unavailable, Message: "gone"}
	}
	if res, err := w.Call(t.Context(), req); err != nil || !res.Replay {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := w.Call(t.Context(), call(`{}`)); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Error(err)
	}
}

// A caller chooses among the tool's tiers, and what one of them cannot do is
// refused before anybody is asked.
func TestCallersTier(t *testing.T) {
	m := sallyport.Manifest{Trust: "agent", Tiers: []string{"gvisor", "isolate", "microvm"}}
	for _, tt := range []struct {
		args string
		tier string
		code sallyport.Code
	}{
		{`{"code":"1"}`, "gvisor", ""},
		{`{"code":"1","tier":"isolate"}`, "isolate", ""},
		{`{"code":"1","tier":"microvm"}`, "microvm", ""},
		{`{"code":"1","tier":"isolate","session":"s"}`, "isolate", sallyport.Invalid},
		{`{"code":"1","tier":"microvm","session":"s"}`, "microvm", ""},
		{`{"code":"1","tier":"wasm"}`, "wasm", sallyport.Invalid},
	} {
		w := sandboxed(t, m, "javascript", "")
		_, err := w.Call(t.Context(), call(tt.args))
		if err != nil && sallyport.CodeOf(err) != tt.code || err == nil && tt.code != "" {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		if r := w.last(t); r.Tier != tt.tier || (len(w.ran) == 1) != (tt.code == "") {
			t.Errorf("%s: %q, ran %d", tt.args, r.Tier, len(w.ran))
		}
		if e, ok := err.(*sallyport.Error); ok && (e.Step != sallyport.Authorize || e.Hint == "") {
			t.Errorf("%s: %+v", tt.args, e)
		}
	}
}
