package saga_test

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/saga/plan"
)

// A ticket of a program that did not note the saga of a call: where its agent had
// one open at the time, the call does not run outside of it, nor at all.
func TestFO60_TicketOfAnOlderProgram(t *testing.T) {
	for _, tt := range []struct {
		name         string
		open, older  bool // an ad-hoc saga, when the ticket was opened; the ticket is an older program's
		decided, key bool // it is approved before the agent comes back; by key, not by ticket
		runs         bool
	}{
		{name: "an older one, by ticket", open: true, older: true, decided: true},
		{name: "an older one, by key", open: true, older: true, decided: true, key: true},
		{name: "an older one, not decided", open: true, older: true, key: true},
		{name: "an older one, no saga was open", older: true, decided: true, runs: true},
		{name: "today's, outside of the saga that is open", open: true, decided: true, key: true, runs: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.perm = gateway.Verdict{Allow: true, Demands: []sallyport.Demand{{Policy: "ask"}}}
			h := w.live(0, false)
			defer h.end()
			if tt.open {
				if _, err := h.front.Call(t.Context(), request(plan.ToolBegin, map[string]any{})); err != nil {
					t.Fatal(err)
				}
			}
			r := request("do", map[string]any{"what": "x"}) // in the saga, as the older program let it be said and forgot
			r.Key = "k"
			_, err := h.front.Call(t.Context(), r)
			tickets := rows(t, w, "SELECT id FROM tickets WHERE state = 'pending'")
			if len(tickets) != 1 {
				t.Fatalf("%d tickets, %v", len(tickets), err)
			}
			id := tickets[0]
			if tt.older {
				forgetSaga(t, w, id)
			}
			if tt.decided {
				h.decide(id, true)
			}
			if !tt.key {
				r.Key, r.Ticket = "", id
			}
			_, err = h.front.Call(t.Context(), r)
			tk, lost := h.db.Ticket(t.Context(), "t", id)
			if lost != nil {
				t.Fatal(lost)
			}
			if tt.runs {
				if w.want("do x"); err != nil || tk.State != sallyport.TicketConsumed {
					t.Errorf("%v, %s", err, tk.State)
				}
				return
			}
			w.want()
			if sallyport.CodeOf(err) != sallyport.Conflict || !strings.Contains(err.Error(), "older version") ||
				!slices.Contains([]sallyport.TicketState{sallyport.TicketVoid, sallyport.TicketWithdrawn}, tk.State) {
				t.Errorf("%v, %s", err, tk.State)
			}
		})
	}
}

// forgetSaga makes a ticket as an older program left it.
func forgetSaga(t *testing.T, w *world, id string) {
	t.Helper()
	if n := rows(t, w, "UPDATE tickets SET notes_saga = 0 WHERE id = '"+id+"' AND notes_saga = 1 RETURNING id"); len(n) != 1 {
		t.Fatal("the ticket was an older one already")
	}
}

// rows asks the database behind the store's back.
func rows(t *testing.T, w *world, query string) (out []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, "db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	found, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var s string
		if err := found.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
