package passkey_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval/passkey"
	"sallyport.dev/sallyport/audit"
)

// The auditor's check turns red for each thing that could be wrong.
func TestCheckRecord(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	a := w.enrol("ada")
	_, err := w.browser(a).Open(t.Context(), w.link("ada", w.ticket("x", true)))
	w.must(err)
	rows := map[string]*audit.Row{}
	var all []audit.Row
	w.must(w.db.Rows(t.Context(), logOf(w), 0, func(r audit.Row) error { all = append(all, r); return nil }))
	for i := range all {
		var c struct{ Action, Hash string }
		_ = json.Unmarshal(all[i].Payload, &c)
		switch {
		case c.Action == passkey.ActionSign:
			rows["sign"] = &all[i]
		case c.Action == "passkeys add" && strings.Contains(string(all[i].Payload), "public_key"):
			rows["add"] = &all[i]
		case all[i].Kind == sallyport.EntryTicket:
			rows["ticket"] = &all[i]
		}
	}
	if len(rows) != 3 {
		t.Fatalf("rows %v", rows)
	}
	if n, problems, err := passkey.CheckRecord(t.Context(), rowSource(all)); n != 1 || len(problems) != 0 || err != nil {
		t.Fatalf("the control: %d, %v, %v", n, problems, err)
	}
	decision := audit.Row{Kind: sallyport.EntryDecision, Payload: json.RawMessage(`{"ticket":"tkt_x","vote":{"by":"bob","approve":true,"passkey":"pk_none"}}`)}
	removed := audit.Row{Kind: sallyport.EntryAdmin, Time: rows["sign"].Time.Add(-time.Second), Payload: json.RawMessage(`{"action":"passkeys remove","target":"TARGET"}`)}
	var add struct{ Target string }
	w.must(json.Unmarshal(rows["add"].Payload, &add))
	removed.Payload = json.RawMessage(strings.Replace(string(removed.Payload), "TARGET", add.Target, 1))
	for name, tt := range map[string]struct {
		row      string
		old, new string
		more     []audit.Row
	}{
		"another hash":         {row: "sign", old: `"hash":"`, new: `"hash":"0`},
		"another admin":        {row: "sign", old: `"admin":"ada"`, new: `"admin":"bob"`},
		"no signature":         {row: "sign", old: `"signature":"`, new: `"signature":"AA`},
		"unreadable":           {row: "sign", old: `"v":1`, new: `"v":2`},
		"another ticket":       {row: "ticket", old: `"id":"tkt_x"`, new: `"id":"tkt_y"`},
		"another ticket hash":  {row: "ticket", old: `"hash":"`, new: `"hash":"0`},
		"somebody else's key":  {row: "add", old: `"admin":"ada"`, new: `"admin":"bob"`},
		"another key":          {row: "add", old: `"public_key":"p`, new: `"public_key":"o`},
		"removed before":       {more: []audit.Row{removed}},
		"a vote without proof": {more: []audit.Row{decision}},
	} {
		altered := append(append([]audit.Row{}, all...), tt.more...)
		if tt.row != "" {
			for i := range altered {
				if altered[i].Seq == rows[tt.row].Seq {
					before := string(altered[i].Payload)
					altered[i].Payload = json.RawMessage(strings.Replace(before, tt.old, tt.new, 1))
					if string(altered[i].Payload) == before {
						t.Fatalf("%s: nothing to alter in %s", name, before)
					}
				}
			}
		}
		if _, problems, err := passkey.CheckRecord(t.Context(), rowSource(altered)); len(problems) == 0 || err != nil {
			t.Errorf("%s: nobody noticed (%v)", name, err)
		}
	}
}

func logOf(w *world) string {
	logs, err := w.db.Logs(w.Context())
	w.must(err)
	return logs[0].Writer
}

// A rowSource is a record in memory.
type rowSource []audit.Row

func (s rowSource) Logs(context.Context) ([]audit.State, error) {
	return []audit.State{{Writer: "w"}}, nil
}
func (s rowSource) Rows(_ context.Context, _ string, _ int64, fn func(audit.Row) error) error {
	for _, r := range s {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}
