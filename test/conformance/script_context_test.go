package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// Through a profile, a script sees what the profile has, though it is too much to be
// listed, and nothing else can be called, whatever frames say.
func scriptInProfile(t *testing.T, g *stage.Gateway) {
	var made struct{ Secret string }
	if err := json.Unmarshal([]byte(g.Must("", "agents", "add", "few", "--role", "agent", "--json").Out), &made); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/oauth/token", strings.NewReader("grant_type=client_credentials&resource="+g.URL+"/mcp/few"))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("few", made.Secret)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var token struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&token); err != nil || token.AccessToken == "" {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	few := raw{url: g.URL + "/mcp/few", token: token.AccessToken}
	_, s := few.script(t, "", `console.log(Object.keys(tools.a).join(), await tools.a.say({text: "x"}));
try { await tools.$call("a__pay", {to: "profile"}) } catch (e) { console.log(e.code) }
try { await tools.$call("call_tool", {name: "a__pay", arguments: {to: "profile"}}) } catch (e) { console.log(e.code) }`, []string{"a__*"})
	if s.Stdout != "say x\nnot_found\nnot_found\n" {
		t.Errorf("%+v", s)
	}
}

// What a script calls is part of the open saga that its call is part of.
func scriptInSaga(t *testing.T, g *stage.Gateway, c raw, l *stage.Ledger) {
	var saga struct{ ID string }
	if err := json.Unmarshal(c.must(t, "saga_begin", `{"name":"scripted"}`, "").Structured, &saga); err != nil {
		t.Fatal(err)
	}
	_, s := c.script(t, `"dev.sallyport/saga":`+str(saga.ID), `await tools.a.pay({of: "saga", i: 1})`, []string{"a__pay"})
	out := g.Must("", "saga", "status", saga.ID, "--json").Out
	if len(s.Calls) != 1 || !strings.Contains(out, s.Calls[0].CallID) {
		t.Errorf("%+v: %s", s.Calls, out)
	}
	a := c.must(t, "saga_run", `{"plan":{"name":"x","steps":[{"id":"s","tool":"run_javascript","arguments":{"code":"await tools.a.pay({of: 'saga', i: 2})","tools":["a__pay"]},"compensate":"none"}]}}`, "")
	if err := json.Unmarshal(a.Structured, &saga); err != nil || saga.ID == "" {
		t.Fatal(a)
	}
	g.Eventually(stage.Patience, "the saga is over", func() error {
		if out := g.Must("", "saga", "status", saga.ID, "--json").Out; !strings.Contains(out, "a step of a saga cannot call tools") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if got := effects(t, l, "saga"); fmt.Sprint(got) != "map[1:1]" {
		t.Errorf("%v", got)
	}
}

// What a script reads of strangers comes wrapped, wraps what it prints, and taints
// who called it.
func scriptReadsStrangers(t *testing.T, g *stage.Gateway, c raw) {
	g.Write("tools/a_size.yaml", "server: a\ntool: size\nread_only: true\nuntrusted: true\n")
	g.Must("", "policy", "reload")
	a, s := c.script(t, keyed("strangers"), `const text = await tools.a.size({n: 300}); console.log(text.startsWith("<<<UNTRUSTED"), text.length)`, []string{"a__*"})
	if !strings.HasPrefix(s.Stdout, "true ") || !strings.HasPrefix(a.Text, "<<<UNTRUSTED ") || !strings.Contains(string(a.Result), `"dev.sallyport/untrusted":{"boundary"`) {
		t.Errorf("%s", a)
	}
	again, _ := c.script(t, keyed("strangers"), `const text = await tools.a.size({n: 300}); console.log(text.startsWith("<<<UNTRUSTED"), text.length)`, []string{"a__*"})
	if !strings.HasPrefix(again.Text, "<<<UNTRUSTED ") || !strings.Contains(string(again.Result), `"dev.sallyport/replay":true`) {
		t.Errorf("once more: %s", again)
	}
	if a := c.must(t, "a__pay", `{"to":"tainted"}`, ""); a.Code != "approval_pending" {
		t.Errorf("who called it is not tainted: %s", a)
	}
	if a, _ := c.script(t, "", `console.log(await tools.a.say({text: "clean"}))`, []string{"a__say"}); a.Text != "clean\n" {
		t.Errorf("a script that read nothing of strangers: %s", a)
	}
}
