package config_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/config"
)

func TestWebhooks(t *testing.T) {
	c, err := config.Parse(file, []byte(`
approvals:
  url: HTTPS://GW.example.com:8443/
  passkeys: required
  webhooks:
    chat:
      url: https://chat.example.com/hooks/a?b=c
      secret: ${secret:chat-out}
      events: [opened, decided]
      decisions:
        secret: ${secret:chat-in}
        users: {U123: alice, 42: bob}
        may: [reject]
        risk: high
    mail:
      decisions: {secret: "${secret:m}", users: {a@b.test: alice}, irreversible: true}
    local: {url: "http://127.0.0.1:9/x", secret: "${secret:l}"}
    private: {url: "https://10.0.0.1/x", secret: "${secret:l}"}
`))
	if err != nil {
		t.Fatal(err)
	}
	a := c.Approvals
	want := config.WebhookDecisions{Secret: "${secret:chat-in}", Users: map[string]string{"U123": "alice", "42": "bob"}, May: []string{"reject"}, Risk: "high"}
	if a.URL != "https://gw.example.com:8443" || a.Passkeys != "required" || len(a.Webhooks) != 4 || !reflect.DeepEqual(a.Webhooks["chat"].Decisions, want) || !reflect.DeepEqual(a.Webhooks["chat"].Events, []string{"opened", "decided"}) {
		t.Errorf("%+v", a)
	}
	if m := a.Webhooks["mail"].Decisions; !reflect.DeepEqual(m.May, []string{"approve", "reject"}) || m.Risk != "critical" || !m.Enabled() || a.Webhooks["local"].Decisions.Enabled() {
		t.Errorf("defaults: %+v", m)
	}
	if d := config.Default().Approvals; d.Passkeys != "enrolled" {
		t.Errorf("by default passkeys are %s", d.Passkeys)
	}
}

func TestWebhooksRefused(t *testing.T) {
	const fine = `url: "https://h/", secret: "${secret:s}"`
	for _, tt := range []struct{ in, message, hint string }{
		{"passkeys: on", `"on" is not known`, "off, enrolled, required"},
		{"url: http://gw.example.com", "must be https", "localhost"},
		{"url: https://gw.example.com/console", "is not the address of a host", ""},
		{"url: https://u:hunter2@gw.example.com", "is not the address of a host", ""},
		{"webhooks: {Chat: {" + fine + "}}", `"Chat" cannot be the name of a webhook`, ""},
		{"webhooks: {a: {events: [opened]}}", "a does nothing", "decisions"},
		{`webhooks: {a: {url: "https://h/"}}`, "a.secret must be a reference", "sallyport webhooks secret"},
		{`webhooks: {a: {url: "https://h/", secret: hunter2}}`, "a.secret must be a reference", ""},
		{`webhooks: {a: {url: "https://h/", secret: "x${secret:s}"}}`, "a.secret must be a reference", ""},
		{`webhooks: {a: {url: "http://h/", secret: "${secret:s}"}}`, "in the clear", "this machine"},
		{`webhooks: {a: {url: "http://10.0.0.1/", secret: "${secret:s}"}}`, "in the clear", ""},
		{`webhooks: {a: {url: "ftp://h/", secret: "${secret:s}"}}`, "is not the URL", ""},
		{`webhooks: {a: {url: "https://u:hunter2@h/", secret: "${secret:s}"}}`, "without a user", ""},
		{"webhooks: {a: {" + fine + ", events: [open]}}", `"open" is not known`, "opened"},
		{"webhooks: {a: {" + fine + ", decisions: {}}}", "decisions.secret must be a reference", ""},
		{"webhooks: {a: {" + fine + `, decisions: {secret: "${secret:i}"}}}`, "names nobody", "USER"},
		{"webhooks: {a: {" + fine + `, decisions: {secret: "${secret:s}", users: {u: ada}}}}`, "one secret both ways", "another one"},
		{`webhooks: {a: {decisions: {secret: "${secret:i}", users: {u: "a b"}}}}`, `"a b" cannot be the name of a admin`, ""},
		{`webhooks: {a: {decisions: {secret: "${secret:i}", users: {u: ada}, may: [decide]}}}`, `"decide" is not known`, "approve, reject"},
		{`webhooks: {a: {decisions: {secret: "${secret:i}", users: {u: ada}, may: []}}}`, "may is empty", ""},
		{`webhooks: {a: {decisions: {secret: "${secret:i}", users: {u: ada}, risk: huge}}}`, `"huge" is not known`, "critical"},
		{`webhooks: {a: {decisions: {secret: "${secret:i}", users: {u: ada}, may: [reject], irreversible: true}}}`, "is about approving", ""},
		{`webhooks: {a: {secret: "${secret:s}", decisions: {secret: "${secret:i}", users: {u: ada}}}}`, "signs nothing", ""},
		{`webhooks: {a: {` + fine + `, urll: x}}`, `unknown key "approvals.webhooks.a.urll"`, "url"},
	} {
		_, err := config.Parse(file, []byte("approvals: {"+tt.in+"}\n"))
		e, ok := errors.AsType[*sallyport.Error](err)
		if !ok || !strings.Contains(e.Message, tt.message) || !strings.Contains(e.Hint, tt.hint) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v; want %q, hint %q", tt.in, err, tt.message, tt.hint)
		}
	}
}
