package adminapi

import (
	"context"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func (d *desk) ListPasskeys(context.Context) ([]PasskeyInfo, error) { return nil, nil }
func (d *desk) RemovePasskey(_ context.Context, id, by, reason string) error {
	d.note("removed " + id + " by " + by + ": " + reason)
	return nil
}
func (d *desk) NewPasskeyLink(_ context.Context, admin string, r LinkRequest) (PasskeyLink, error) {
	d.note(r.Kind + " for " + admin + " " + r.Ticket + r.Label)
	return PasskeyLink{Needed: true, ID: "l"}, nil
}
func (d *desk) PasskeyLink(context.Context, string) (PasskeyLink, error) { return PasskeyLink{}, nil }
func (d *desk) Confirmed(_ context.Context, admin string) error {
	if d.unconfirmed[admin] {
		return &sallyport.Error{Code: sallyport.Denied, Message: "confirm with your passkey"}
	}
	return nil
}
func (d *desk) SetSecret(_ context.Context, name, _, by string) error {
	d.note("set " + name + " by " + by)
	return nil
}
func (d *desk) SecretNames(context.Context) ([]string, error)      { return nil, nil }
func (d *desk) RemoveSecret(context.Context, string, string) error { return nil }

func (d *desk) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, s)
}

// What changes who may decide takes more than a login from those who have a
// passkey; the control is the same login, confirmed.
func TestConfirmedRoutes(t *testing.T) {
	s, d := newServer(true)
	base, c := onSocket(t, s)
	ask(t, c, "POST", base+"/api/v1/login", "", `{"name":"ann","password":"right"}`)
	n := 0
	for _, r := range s.routes() {
		if r.need != confirmed {
			continue
		}
		n++
		path := strings.NewReplacer("{id}", "pk_1", "{name}", "bob").Replace(r.path)
		d.unconfirmed = map[string]bool{"ann": true}
		if code, body := ask(t, c, r.method, base+path, "", "{}"); code != 403 || !strings.Contains(body, "confirm with your passkey") {
			t.Errorf("unconfirmed: %s %s = %d %s", r.method, r.path, code, body)
		}
	}
	if n < 4 {
		t.Errorf("only %d routes need a confirmation", n)
	}
	if len(d.notes) > 0 {
		t.Errorf("done all the same: %v", d.notes)
	}
	d.unconfirmed = nil
	if code, body := ask(t, c, "DELETE", base+"/api/v1/passkeys/pk_1?reason=lost", "", ""); code != 200 || len(d.notes) != 1 || d.notes[0] != "removed pk_1 by ann: lost" {
		t.Errorf("confirmed: %d %s, %v", code, body, d.notes)
	}
}

// Who operates the gateway sets its secrets, but for those that decide tickets.
func TestSecretsThatDecide(t *testing.T) {
	s, d := newServer(true)
	base, c := onSocket(t, s)
	set := func(name string) int {
		code, _ := ask(t, c, "PUT", base+"/api/v1/secrets/"+name, "", `{"value":"x"}`)
		return code
	}
	if code := set("other"); code != 200 {
		t.Errorf("the control, a secret that decides nothing: %d", code)
	}
	if code := set("chat-in"); code != 401 {
		t.Errorf("without a login: %d", code)
	}
	ask(t, c, "POST", base+"/api/v1/login", "", `{"name":"ann","password":"right"}`)
	d.unconfirmed = map[string]bool{"ann": true}
	if code := set("chat-in"); code != 403 {
		t.Errorf("unconfirmed: %d", code)
	}
	d.unconfirmed = nil
	if code := set("chat-in"); code != 200 {
		t.Errorf("by a human: %d", code)
	}
	if got := strings.Join(d.notes, ", "); !strings.HasPrefix(got, "set other by uid:") || !strings.HasSuffix(got, "set chat-in by ann") {
		t.Errorf("%s", got)
	}
}

func TestPasskeyLinks(t *testing.T) {
	s, d := newServer(true)
	base, c := onSocket(t, s)
	ask(t, c, "POST", base+"/api/v1/login", "", `{"name":"ann","password":"right"}`)
	for body, want := range map[string]int{
		`{"kind":"add","label":"x"}`: 200, `{"kind":"sign","ticket":"tkt_1"}`: 200, `{"kind":"confirm"}`: 200,
		`{"kind":"other"}`: 400, `{}`: 400, `{"kind":"add","admin":"bob"}`: 400,
	} {
		if code, said := ask(t, c, "POST", base+"/api/v1/passkeys/links", "", body); code != want {
			t.Errorf("%s: %d %s", body, code, said)
		}
	}
	if len(d.notes) != 3 {
		t.Errorf("%v", d.notes)
	}
}
