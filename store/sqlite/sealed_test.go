package sqlite_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/sqlite"
)

const canary = "canary-7f3c-of-the-customer"

// telling makes what callers and tools said part of a ticket and an output.
func telling(t *testing.T, s *sqlite.Store) {
	t.Helper()
	ctx := t.Context()
	b := binding(`{"iban":"` + canary + `"}`)
	b.Witness = []sallyport.Observation{{Name: "row", Value: canary, Hash: "h"}}
	tk := sallyport.Ticket{ID: "T", CallID: "k", Key: "k", Binding: b, Hash: b.Hash(), Risk: sallyport.Risk{
		Level: sallyport.Critical, Reasons: []string{"sends to " + canary}, Objects: []string{canary}, Parts: []sallyport.Part{{Label: "recipient", Text: canary}}}}
	e := sallyport.Entry{Tenant: "t", Kind: sallyport.EntryTicket, Payload: []byte("{}")}
	if _, err := s.Open(ctx, tk, beginOf("k", "").Key, "f", e); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Decide(ctx, "t", sallyport.Decision{Ticket: "T", Approve: true, By: "ada"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	bg := beginOf("k", "T")
	bg.TicketHash = b.Hash()
	bg.Amounts = []sallyport.Amount{{Value: "5", Recipient: canary}}
	fence, err := s.Begin(ctx, bg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Finish(ctx, gateway.Finish{Key: bg.Key, Fence: fence, State: sallyport.Done, Output: output(), Outcome: e}); err != nil {
		t.Fatal(err)
	}
	bg = beginOf("failed", "")
	if fence, err = s.Begin(ctx, bg); err != nil {
		t.Fatal(err)
	}
	if err := s.Finish(ctx, gateway.Finish{Key: bg.Key, Fence: fence, State: sallyport.Failed, Reason: output(), Outcome: e}); err != nil {
		t.Fatal(err)
	}
}

func output() json.RawMessage {
	return json.RawMessage(`{"content":[{"type":"text","text":"` + canary + `"}]}`)
}

// hits counts the canary in all files of the database, in every form.
func hits(t *testing.T, p *place) (n int) {
	t.Helper()
	files, err := filepath.Glob(p.db() + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	forms := [][]byte{[]byte(canary), []byte(hex.EncodeToString([]byte(canary)))}
	for i := range 3 { // base64 of it, wherever it stands in a text
		enc := base64.StdEncoding.EncodeToString([]byte(canary)[i : i+24])
		forms = append(forms, []byte(enc))
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range forms {
			n += bytes.Count(bytes.ToLower(b), bytes.ToLower(form))
		}
	}
	return n
}

// FO-43: nothing that callers or tools said is legible in the database file or
// beside it. The control is the same without a box.
func TestFO43_NothingLegibleAtRest(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		p := newPlace(t)
		box := p.box
		if !sealed {
			p.box = nil
		}
		s, err := p.open(time.Now)
		if err != nil {
			t.Fatal(err)
		}
		telling(t, s)
		during := hits(t, p)
		tk, err := s.Ticket(t.Context(), "t", "T")
		if err != nil || string(tk.Binding.Args) != `{"iban":"`+canary+`"}` || tk.Risk.Parts[0].Text != canary || tk.Binding.Witness[0].Value != canary || tk.Binding.Hash() != tk.Hash {
			t.Errorf("sealed %v: the ticket comes back as %+v, %v", sealed, tk, err)
		}
		all, err := s.ListTickets(t.Context(), store.TicketFilter{})
		if err != nil || len(all) != 1 || all[0].Binding.Hash() != tk.Hash || all[0].Risk.Level != sallyport.Critical {
			t.Errorf("sealed %v: listed as %+v, %v", sealed, all, err)
		}
		r, err := s.Find(t.Context(), beginOf("k", "").Key)
		if err != nil || string(r.Output) != string(output()) {
			t.Errorf("sealed %v: the output comes back as %s, %v", sealed, r.Output, err)
		}
		if r, err = s.Find(t.Context(), beginOf("failed", "").Key); err != nil || string(r.Reason) != string(output()) {
			t.Errorf("sealed %v: the reason comes back as %s, %v", sealed, r.Reason, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		after := hits(t, p)
		if sealed && during+after > 0 {
			t.Errorf("the canary is legible %d times while the store is open, %d times afterwards", during, after)
		}
		if !sealed && (during == 0 || after == 0) {
			t.Errorf("the control: legible %d and %d times without a box, so this test sees nothing", during, after)
		}
		reopen(t, p, box, sealed)
	}
}

// reopen reads the database with the key, without it, and with another.
func reopen(t *testing.T, p *place, box *secret.Rows, sealed bool) {
	t.Helper()
	other := newPlace(t).box
	for name, tt := range map[string]struct {
		opts []relational.Option
		want sallyport.Code
	}{
		"with the key":     {[]relational.Option{relational.WithBox(box)}, ""},
		"without it":       {nil, sallyport.Unavailable},
		"with another key": {[]relational.Option{relational.WithBox(other)}, sallyport.Unavailable},
	} {
		if !sealed {
			tt.want = "" // rows from before there was a box are read as they are
		}
		ro, err := sqlite.OpenReadOnly(p.db(), tt.opts...)
		if err != nil {
			t.Fatal(err)
		}
		_, err1 := ro.Ticket(t.Context(), "t", "T")
		_, err2 := ro.ListTickets(t.Context(), store.TicketFilter{})
		_, err3 := ro.Find(t.Context(), beginOf("k", "").Key)
		for i, err := range []error{err1, err2, err3} {
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || sallyport.CodeOf(err) != tt.want) {
				t.Errorf("sealed %v, %s, read %d: %v, want code %q", sealed, name, i, err, tt.want)
			}
		}
		// What needs no key goes on without it.
		if rs, err := ro.Reservations(t.Context(), store.ReservationFilter{}); err != nil || len(rs) != 2 {
			t.Errorf("%s: reservations %v, %v", name, rs, err)
		}
		if err := ro.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A row that was altered, or put in another's place, is refused.
func TestSealedRowsStayInTheirPlace(t *testing.T) {
	p := newPlace(t)
	s := p.Open(t, time.Now)
	defer s.Close()
	for _, k := range []string{"a", "b"} {
		bg := beginOf(k, "")
		fence, err := s.Begin(t.Context(), bg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Finish(t.Context(), gateway.Finish{Key: bg.Key, Fence: fence, State: sallyport.Done, Output: output(),
			Outcome: sallyport.Entry{Tenant: "t", Kind: sallyport.EntryOutcome, Payload: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, p, "UPDATE reservations SET output = (SELECT output FROM reservations WHERE key = 'b') WHERE key = 'a'")
	if r, err := s.Find(t.Context(), beginOf("a", "").Key); sallyport.CodeOf(err) != sallyport.Unavailable || err == nil {
		t.Errorf("another row's output: %+v, %v", r, err)
	}
	if _, err := s.Find(t.Context(), beginOf("b", "").Key); err != nil {
		t.Error(err)
	}
}

// What sealing costs a mutating call.
func BenchmarkSealed(b *testing.B) {
	for _, sealed := range []bool{false, true} {
		b.Run(fmt.Sprintf("sealed=%v", sealed), func(b *testing.B) {
			var opts []relational.Option
			if sealed {
				dir := b.TempDir()
				if err := secret.CreateKey(dir); err != nil {
					b.Fatal(err)
				}
				box, err := secret.OpenRows(dir)
				if err != nil {
					b.Fatal(err)
				}
				opts = append(opts, relational.WithBox(box))
			}
			s := benchStore(b, false, opts...)
			i := 0
			cpu(b)
			for b.Loop() {
				if err := beginFinish(s, fmt.Sprint(i)); err != nil {
					b.Fatal(err)
				}
				if _, err := s.Find(context.Background(), beginOf(fmt.Sprint(i), "").Key); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
