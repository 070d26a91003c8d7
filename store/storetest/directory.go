package storetest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
)

func testAgents(t *testing.T, f *fixture) {
	a := sallyport.Agent{Tenant: "t", ID: "a", Roles: []string{"dev", "ops"}, SecretHash: "h", State: "active", Source: "database"}
	must(t, f.PutAgent(t.Context(), a, f.admin(t)))
	a.CreatedAt = f.now()
	got, err := f.Agent(t.Context(), "t", "a")
	must(t, err)
	same(t, "agent", got, a)
	f.pass(time.Hour)
	must(t, f.SetAgentState(t.Context(), "t", "a", "suspended", f.now(), f.admin(t)))
	must(t, f.SetAgentState(t.Context(), "t", "a", "active", time.Time{}, f.admin(t)))
	a.NotBefore = f.now()
	got, err = f.Agent(t.Context(), "t", "a")
	must(t, err)
	same(t, "not_before never goes back", got, a)
	must(t, f.SetAgentState(t.Context(), "t", "a", "revoked", f.now(), f.admin(t)))
	wantCode(t, "revoked is for good", f.SetAgentState(t.Context(), "t", "a", "active", f.now(), f.admin(t)), sallyport.Conflict)
	before := f.count(t, sallyport.EntryAdmin)
	wantCode(t, "no such agent", f.SetAgentState(t.Context(), "u", "a", "active", f.now(), f.admin(t)), sallyport.NotFound)
	bad := a
	bad.State = "root"
	if err := f.PutAgent(t.Context(), bad, f.admin(t)); err == nil {
		t.Error("an unknown state was stored")
	}
	if n := f.count(t, sallyport.EntryAdmin); n != before || n != 4 {
		t.Errorf("%d admin entries, want 4: one for each change that took place", n)
	}
	_, err = f.Agent(t.Context(), "u", "a")
	wantCode(t, "another tenant", err, sallyport.NotFound)
	all, err := f.Agents(t.Context(), "t")
	if err != nil || len(all) != 1 || all[0].State != "revoked" {
		t.Errorf("Agents = %+v, %v", all, err)
	}
}

func testAdmins(t *testing.T, f *fixture) {
	a := sallyport.Admin{Tenant: "t", Name: "ada", Groups: []string{"approvers"}, PasswordHash: "h"}
	must(t, f.PutAdmin(t.Context(), a, f.admin(t)))
	a.CreatedAt = f.now()
	got, err := f.Admin(t.Context(), "t", "ada")
	must(t, err)
	same(t, "admin", got, a)
	all, err := f.Admins(t.Context(), "")
	if err != nil || len(all) != 1 {
		t.Errorf("Admins = %v, %v", all, err)
	}
	wantCode(t, "no such admin", f.DeleteAdmin(t.Context(), "t", "bob", f.admin(t)), sallyport.NotFound)
	must(t, f.DeleteAdmin(t.Context(), "t", "ada", f.admin(t)))
	_, err = f.Admin(t.Context(), "t", "ada")
	wantCode(t, "after Delete", err, sallyport.NotFound)
}

func testPins(t *testing.T, f *fixture) {
	def := json.RawMessage("{\"name\":\"x\", \"n\":9007199254740993, \"d\":\"<\u2028>\"}")
	p := store.Pin{Tenant: "t", Server: "s", Name: "x", Digest: "d1", Definition: def, Version: "2.1.0", Accepted: []string{"/description: a", "b"}, Endpoint: "https://s.example/mcp", Status: "active", ApprovedBy: "ada", ApprovedAt: f.now()}
	q := p
	q.Name, q.Status = "y", "quarantined"
	must(t, f.PutPins(t.Context(), []store.Pin{p, q}, f.admin(t)))
	p.UpdatedAt = f.now()
	got, err := f.Pin(t.Context(), "t", "s", "x")
	must(t, err)
	same(t, "pin", got, p)
	p.Digest = "d2"
	must(t, f.PutPins(t.Context(), []store.Pin{p}, f.admin(t)))
	pins, err := f.Pins(t.Context(), "t", "s")
	if err != nil || len(pins) != 2 || pins[0].Digest != "d2" || pins[1].Status != "quarantined" {
		t.Errorf("Pins = %+v, %v", pins, err)
	}
	_, err = f.Pin(t.Context(), "u", "s", "x")
	wantCode(t, "another tenant", err, sallyport.NotFound)
	must(t, f.DeletePin(t.Context(), "t", "s", "x", f.admin(t)))
	wantCode(t, "twice", f.DeletePin(t.Context(), "t", "s", "x", f.admin(t)), sallyport.NotFound)
}

func testServers(t *testing.T, f *fixture) {
	v := store.Server{Tenant: "t", Name: "s", Config: json.RawMessage(`{"url": "https://x.test"}`)}
	must(t, f.PutServer(t.Context(), v, f.admin(t)))
	must(t, f.PutPins(t.Context(), []store.Pin{{Tenant: "t", Server: "s", Name: "x", Definition: json.RawMessage(`{}`)}}, f.admin(t)))
	v.UpdatedAt = f.now()
	all, err := f.Servers(t.Context(), "t")
	must(t, err)
	same(t, "servers", all, []store.Server{v})
	must(t, f.DeleteServer(t.Context(), "t", "s", f.admin(t)))
	if pins, err := f.Pins(t.Context(), "t", "s"); err != nil || len(pins) != 0 {
		t.Errorf("pins of a deleted server: %v, %v", pins, err)
	}
	wantCode(t, "twice", f.DeleteServer(t.Context(), "t", "s", f.admin(t)), sallyport.NotFound)
}

func testSecrets(t *testing.T, f *fixture) {
	must(t, f.PutSecret(t.Context(), "t", "db", []byte{0, 1, 255}, f.admin(t)))
	must(t, f.PutSecret(t.Context(), "t", "db", []byte{2}, f.admin(t)))
	got, err := f.Secret(t.Context(), "t", "db")
	must(t, err)
	same(t, "secret", got, []byte{2})
	_, err = f.Secret(t.Context(), "u", "db")
	wantCode(t, "another tenant", err, sallyport.NotFound)
	names, err := f.Secrets(t.Context(), "t")
	must(t, err)
	same(t, "names", names, []store.SecretInfo{{Name: "db", UpdatedAt: f.now()}})
	must(t, f.DeleteSecret(t.Context(), "t", "db", f.admin(t)))
	wantCode(t, "twice", f.DeleteSecret(t.Context(), "t", "db", f.admin(t)), sallyport.NotFound)
}

func testRecord(t *testing.T, f *fixture) {
	at := time.Date(2020, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600))
	payload := json.RawMessage(`{ "n" : 9007199254740993, "s":"<\u2028>" }`)
	must(t, f.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Kind: sallyport.EntryOutcome, CallID: "c", Time: at, Payload: payload},
		sallyport.Entry{Tenant: "u", Kind: sallyport.EntryAdmin, Payload: json.RawMessage(`1`)}))
	if err := f.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Payload: json.RawMessage(`{`)}); err == nil {
		t.Error("a payload that is not JSON was taken")
	}
	other := f.another(t) // another process writes on in the same log
	must(t, other.AppendEntries(t.Context(), entry(sallyport.EntryOutcome, "d")))
	must(t, f.AppendEntries(t.Context(), entry(sallyport.EntryOutcome, "e")))
	logs, err := f.Logs(t.Context())
	must(t, err)
	if len(logs) != 1 || logs[0].Size != 4 {
		t.Fatalf("Logs = %+v, want one of 4 entries", logs)
	}
	var rows []audit.Row
	must(t, f.Rows(t.Context(), logs[0].Writer, 0, func(r audit.Row) error { rows = append(rows, r); return nil }))
	for i, r := range rows {
		if r.Seq != int64(i) || !r.Opens() {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	if r := rows[0]; !r.Time.Equal(at) || string(r.Payload) != string(payload) || r.Tenant != "t" || r.CallID != "c" {
		t.Errorf("row 0: %+v", r)
	}
	if !rows[1].Time.Equal(f.now()) {
		t.Errorf("an entry without a time got %v", rows[1].Time)
	}
	var out bytes.Buffer
	must(t, audit.Export(t.Context(), f.Store, &out, ""))
	o := audit.Options{PublicKeys: f.place.PublicKeys()}
	if rep, err := audit.VerifyExport(bytes.NewReader(out.Bytes()), o); err != nil || !rep.OK() || len(rep.Logs) != 1 || rep.Logs[0].Entries != 4 {
		t.Errorf("VerifyExport = %+v, %v; want 4 entries", rep, err)
	}
	forged := strings.Replace(out.String(), `"call_id":"d"`, `"call_id":"x"`, 1)
	if rep, err := audit.VerifyExport(strings.NewReader(forged), o); err != nil || rep.OK() {
		t.Errorf("an altered export passed: %+v, %v", rep, err)
	}
}

func testSearch(t *testing.T, f *fixture) {
	put := func(rec sallyport.Record, kind sallyport.EntryKind) {
		p, err := json.Marshal(rec)
		must(t, err)
		must(t, f.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Kind: kind, CallID: rec.CallID, Payload: p}))
		f.pass(time.Second)
	}
	start := f.now()
	put(sallyport.Record{CallID: "1", Principal: "a", Target: "x"}, sallyport.EntryIntent)
	put(sallyport.Record{CallID: "1", Principal: "a", Target: "x"}, sallyport.EntryOutcome)
	put(sallyport.Record{CallID: "2", Principal: "b", Target: "x", Code: sallyport.Denied, Message: `no <such> "table"`}, sallyport.EntryOutcome)
	for name, tt := range map[string]struct {
		f    audit.Filter
		want string // call ids, newest first
	}{
		"all":       {audit.Filter{}, "211"},
		"tenant":    {audit.Filter{Tenant: "u"}, ""},
		"call":      {audit.Filter{CallID: "1"}, "11"},
		"principal": {audit.Filter{Principal: "b"}, "2"},
		"tool":      {audit.Filter{Tool: "x", Kind: sallyport.EntryOutcome}, "21"},
		"code":      {audit.Filter{Code: "denied"}, "2"},
		"ok":        {audit.Filter{Code: "ok"}, "1"},
		"since":     {audit.Filter{Since: start.Add(time.Second)}, "21"},
		"until":     {audit.Filter{Until: start.Add(time.Second)}, "1"},
		"text":      {audit.Filter{Text: `<such> "table"`}, "2"},
		"no text":   {audit.Filter{Text: `%`}, ""},
	} {
		rows, err := audit.Search(t.Context(), f.Store, tt.f, 0)
		must(t, err)
		got := ""
		for _, r := range rows {
			got += r.CallID
		}
		same(t, name, got, tt.want)
	}
}

func testErase(t *testing.T, f *fixture) {
	must(t, f.AppendEntries(t.Context(), entry(sallyport.EntryOutcome, "a"), entry(sallyport.EntryOutcome, "b")))
	logs, err := f.Logs(t.Context())
	must(t, err)
	w := logs[0].Writer
	must(t, f.EraseAudit(t.Context(), w, 0, "ada", "a person asked"))
	wantCode(t, "erased twice", f.EraseAudit(t.Context(), w, 0, "ada", ""), sallyport.NotFound)
	wantCode(t, "no such entry", f.EraseAudit(t.Context(), w, 99, "ada", ""), sallyport.NotFound)
	wantCode(t, "the record of the erasure", f.EraseAudit(t.Context(), w, 2, "ada", ""), sallyport.Denied)
	wantCode(t, "another log", f.EraseAudit(t.Context(), "x", 1, "ada", ""), sallyport.Denied)
	rep, err := audit.Verify(t.Context(), f.Store, audit.Options{PublicKeys: f.place.PublicKeys()})
	must(t, err)
	if !rep.OK() || len(rep.Logs) != 1 {
		t.Fatalf("after an erasure: %+v", rep)
	}
	same(t, "erased entries", rep.Logs[0].Erased, []int64{0})
}
