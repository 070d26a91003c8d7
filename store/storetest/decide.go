package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// Passkeys are approvers' keys.
type Passkeys interface {
	Passkeys(ctx context.Context, tenant, admin string) ([]store.Passkey, error)
	PutPasskey(ctx context.Context, k store.Passkey, link string, e sallyport.Entry) error
	UsePasskey(ctx context.Context, tenant, id string, counter int64, link string, e sallyport.Entry) error
	DeletePasskey(ctx context.Context, tenant, id string, e sallyport.Entry) error
}

// Links invite to a ceremony.
type Links interface {
	PutLink(ctx context.Context, l store.Link, e sallyport.Entry) error
	Link(ctx context.Context, tenant, id string) (store.Link, error)
	BeginCeremony(ctx context.Context, tenant, id string, ceremony []byte, most int) error
	TakeCeremony(ctx context.Context, tenant, id string) (store.Link, error)
	NoteLink(ctx context.Context, tenant, id, why string) error
}

// An Outbox keeps what is to be sent.
type Outbox interface {
	MovedTickets(ctx context.Context, tenant string, since time.Time, most int) ([]sallyport.Ticket, time.Time, error)
	Swept(ctx context.Context, tenant, hook string) (began, swept time.Time, err error)
	PutNotices(ctx context.Context, tenant, hook string, swept time.Time, all []store.Notice, most int) (int, error)
	ClaimNotices(ctx context.Context, tenant, hook string, now time.Time, lease time.Duration, most int) ([]store.Notice, error)
	SettleNotice(ctx context.Context, n store.Notice) error
	RetryNotices(ctx context.Context, tenant, hook string, e sallyport.Entry) (int, error)
	CountNotices(ctx context.Context, tenant string) ([]store.NoticeCount, error)
}

// An Inbox keeps what came in.
type Inbox interface {
	TakeMessage(ctx context.Context, tenant, hook, id string, e sallyport.Entry) error
	ForgetMessage(ctx context.Context, tenant, hook, id string) error
	PruneWebhooks(ctx context.Context, before time.Time) error
}

func passkey(id, admin string) store.Passkey {
	return store.Passkey{Tenant: "t", ID: id, Admin: admin, Label: "phone", RPID: "localhost", Credential: json.RawMessage(`{"publicKey":"AA=="}`), Counter: 3}
}

func testPasskeys(t *testing.T, f *fixture) {
	k := passkey("pk_1", "ada")
	must(t, f.PutPasskey(t.Context(), k, "", f.admin(t)))
	must(t, f.PutPasskey(t.Context(), passkey("pk_2", "bob"), "", f.admin(t)))
	wantCode(t, "the same again, even for another admin", f.PutPasskey(t.Context(), passkey("pk_1", "bob"), "", f.admin(t)), sallyport.Conflict)
	k.CreatedAt = f.now()
	got, err := f.Passkeys(t.Context(), "t", "ada")
	must(t, err)
	same(t, "passkeys of ada", got, []store.Passkey{k})
	all, err := f.Passkeys(t.Context(), "t", "")
	if err != nil || len(all) != 2 {
		t.Errorf("all passkeys: %v, %v", all, err)
	}
	if other, err := f.Passkeys(t.Context(), "u", ""); err != nil || len(other) != 0 {
		t.Errorf("another tenant's passkeys: %v, %v", other, err)
	}
	for _, tt := range []struct {
		counter int64
		want    sallyport.Code
	}{{3, sallyport.Conflict}, {2, sallyport.Conflict}, {0, sallyport.Conflict}, {4, ""}, {4, sallyport.Conflict}, {math.MaxUint32, ""}} {
		wantCode(t, fmt.Sprintf("counter %d", tt.counter), f.UsePasskey(t.Context(), "t", "pk_1", tt.counter, "", f.admin(t)), tt.want)
	}
	wantCode(t, "no such passkey", f.UsePasskey(t.Context(), "t", "none", 9, "", f.admin(t)), sallyport.NotFound)
	wantCode(t, "another tenant's", f.UsePasskey(t.Context(), "u", "pk_1", 9, "", f.admin(t)), sallyport.NotFound)
	still := passkey("pk_0", "ada")
	still.Counter = 0
	must(t, f.PutPasskey(t.Context(), still, "", f.admin(t)))
	for range 2 { // an authenticator that does not count
		must(t, f.UsePasskey(t.Context(), "t", "pk_0", 0, "", f.admin(t)))
	}
	if got, err := f.Passkeys(t.Context(), "t", "ada"); err != nil || len(got) != 2 || got[1].Counter != math.MaxUint32 && got[0].Counter != math.MaxUint32 || got[0].UsedAt.IsZero() {
		t.Errorf("after use: %+v, %v", got, err)
	}
	entries := f.count(t, sallyport.EntryAdmin)
	must(t, f.DeletePasskey(t.Context(), "t", "pk_1", f.admin(t)))
	wantCode(t, "twice", f.DeletePasskey(t.Context(), "t", "pk_1", f.admin(t)), sallyport.NotFound)
	if n := f.count(t, sallyport.EntryAdmin); n != entries+1 || entries != 7 {
		t.Errorf("%d admin entries before the removal and %d after: one for each change that took place", entries, n)
	}
}

func testLinks(t *testing.T, f *fixture) {
	l := store.Link{Tenant: "t", ID: "l1", Kind: store.LinkSign, Admin: "ada", Login: "x", Ticket: "tk", Reason: "r", Label: "n", ExpiresAt: f.now().Add(10 * time.Minute)}
	must(t, f.PutLink(t.Context(), l, f.admin(t)))
	must(t, f.PutPasskey(t.Context(), passkey("pk_1", "ada"), "", f.admin(t)))
	_, err := f.TakeCeremony(t.Context(), "t", "l1")
	wantCode(t, "no challenge is out", err, sallyport.Conflict)
	_, err = f.TakeCeremony(t.Context(), "u", "l1")
	wantCode(t, "another tenant's link", err, sallyport.NotFound)
	must(t, f.BeginCeremony(t.Context(), "t", "l1", []byte(`{"n":1}`), 2))
	must(t, f.BeginCeremony(t.Context(), "t", "l1", []byte(`{"n":2}`), 2))
	wantCode(t, "a third challenge", f.BeginCeremony(t.Context(), "t", "l1", []byte(`{"n":3}`), 2), sallyport.RateLimited)
	must(t, f.NoteLink(t.Context(), "t", "l1", "no"))
	got, err := f.Link(t.Context(), "t", "l1")
	must(t, err)
	l.State, l.Ceremony, l.Tries, l.Error, l.CreatedAt = store.LinkOpen, json.RawMessage(`{"n":2}`), 2, "no", f.now()
	same(t, "link", got, l)
	got, err = f.TakeCeremony(t.Context(), "t", "l1")
	must(t, err)
	same(t, "taken", got, l)
	_, err = f.TakeCeremony(t.Context(), "t", "l1")
	wantCode(t, "a challenge serves once", err, sallyport.Conflict)
	var won atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := f.UsePasskey(t.Context(), "t", "pk_1", 9, "l1", f.admin(t)); err == nil {
				won.Add(1)
			} else if sallyport.CodeOf(err) != sallyport.Conflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("one link was used %d times", won.Load())
	}
	wantCode(t, "a used link", f.BeginCeremony(t.Context(), "t", "l1", []byte(`{}`), 99), sallyport.Conflict)
	wantCode(t, "a new passkey by a used link", f.PutPasskey(t.Context(), passkey("pk_2", "ada"), "l1", f.admin(t)), sallyport.Conflict)
	if got, err := f.Link(t.Context(), "t", "l1"); err != nil || got.State != store.LinkUsed || got.Error != "" {
		t.Errorf("used: %+v, %v", got, err)
	}
	l.ID = "l2"
	must(t, f.PutLink(t.Context(), l, f.admin(t)))
	f.pass(10 * time.Minute)
	wantCode(t, "a link whose time has passed", f.BeginCeremony(t.Context(), "t", "l2", []byte(`{}`), 9), sallyport.NotFound)
	f.pass(25 * time.Hour)
	l.ID, l.ExpiresAt = "l3", f.now().Add(time.Minute)
	must(t, f.PutLink(t.Context(), l, f.admin(t)))
	_, err = f.Link(t.Context(), "t", "l2")
	wantCode(t, "an old link", err, sallyport.NotFound)
}

func notice(id string) store.Notice {
	return store.Notice{ID: id, Type: "opened", Ticket: "tk", Body: []byte("{\"a\":\"<\u2028\x00\"}")}
}

func (f *fixture) counts(t *testing.T) map[string]int {
	t.Helper()
	all, err := f.CountNotices(t.Context(), "t")
	must(t, err)
	out := map[string]int{}
	for _, c := range all {
		out[c.Hook+" "+c.State] = c.Count
	}
	return out
}

func testNotices(t *testing.T, f *fixture) {
	if began, at, err := f.Swept(t.Context(), "t", "chat"); err != nil || !at.IsZero() || !began.IsZero() {
		t.Errorf("a hook that never looked: %v, %v, %v", began, at, err)
	}
	swept := f.now()
	dropped, err := f.PutNotices(t.Context(), "t", "chat", swept, []store.Notice{notice("a"), notice("b"), notice("a")}, 2)
	if err != nil || dropped != 0 {
		t.Errorf("PutNotices: %d, %v", dropped, err)
	}
	dropped, err = f.PutNotices(t.Context(), "t", "chat", swept.Add(-time.Hour), []store.Notice{notice("a"), notice("c")}, 2)
	if err != nil || dropped != 1 {
		t.Errorf("PutNotices of what is there, and of one too many: %d dropped, %v", dropped, err)
	}
	if _, at, err := f.Swept(t.Context(), "t", "chat"); err != nil || !at.Equal(swept) {
		t.Errorf("Swept goes back: %v, %v", at, err)
	}
	later := swept.Add(time.Minute)
	_, err = f.PutNotices(t.Context(), "t", "chat", later, nil, 2)
	must(t, err)
	if began, at, err := f.Swept(t.Context(), "t", "chat"); err != nil || !at.Equal(later) || !began.Equal(swept) {
		t.Errorf("the hook began %v and looked until %v, %v; want %v and %v", began, at, err, swept, later)
	}
	same(t, "counts", f.counts(t), map[string]int{"chat waiting": 2, "chat dead": 1})
	one, err := f.ClaimNotices(t.Context(), "t", "chat", f.now(), time.Minute, 1)
	must(t, err)
	if len(one) != 1 || one[0].Tries != 1 || string(one[0].Body) != string(notice("a").Body) {
		t.Fatalf("claimed %+v", one)
	}
	rest, err := f.another(t).ClaimNotices(t.Context(), "t", "chat", f.now(), time.Minute, 9)
	if err != nil || len(rest) != 1 || rest[0].ID == one[0].ID {
		t.Errorf("another process claimed %+v, %v", rest, err)
	}
	one[0].State = store.NoticeSent
	must(t, f.SettleNotice(t.Context(), one[0]))
	f.pass(2 * time.Minute) // whoever claimed the other one has died
	again, err := f.ClaimNotices(t.Context(), "t", "chat", f.now(), time.Minute, 9)
	if err != nil || len(again) != 1 || again[0].Tries != 2 {
		t.Fatalf("claimed again: %+v, %v", again, err)
	}
	late := rest[0]
	late.State = store.NoticeSent
	must(t, f.SettleNotice(t.Context(), late)) // the first claim was lost
	same(t, "after a lost claim", f.counts(t), map[string]int{"chat waiting": 1, "chat sent": 1, "chat dead": 1})
	again[0].State, again[0].Error = store.NoticeDead, "HTTP 500"
	must(t, f.SettleNotice(t.Context(), again[0]))
	all, err := f.CountNotices(t.Context(), "t")
	if err != nil || len(all) != 2 || all[0].State != store.NoticeDead || all[0].Count != 2 || all[0].Error != "HTTP 500" || all[0].Since.IsZero() {
		t.Errorf("counts: %+v, %v", all, err)
	}
	if n, err := f.RetryNotices(t.Context(), "t", "chat", f.admin(t)); err != nil || n != 2 {
		t.Errorf("RetryNotices: %d, %v", n, err)
	}
	same(t, "after a retry", f.counts(t), map[string]int{"chat waiting": 2, "chat sent": 1})
	f.pass(48 * time.Hour)
	must(t, f.PruneWebhooks(t.Context(), f.now().Add(-24*time.Hour)))
	same(t, "after pruning", f.counts(t), map[string]int{"chat waiting": 2})
}

func testMessages(t *testing.T, f *fixture) {
	before := f.count(t, sallyport.EntryAdmin)
	must(t, f.TakeMessage(t.Context(), "t", "chat", "m1", f.admin(t)))
	wantCode(t, "twice", f.TakeMessage(t.Context(), "t", "chat", "m1", f.admin(t)), sallyport.Conflict)
	wantCode(t, "twice, elsewhere", f.another(t).TakeMessage(t.Context(), "t", "chat", "m1", f.admin(t)), sallyport.Conflict)
	must(t, f.TakeMessage(t.Context(), "t", "mail", "m1", f.admin(t)))
	must(t, f.TakeMessage(t.Context(), "u", "chat", "m1", f.admin(t)))
	must(t, f.ForgetMessage(t.Context(), "t", "chat", "m1"))
	must(t, f.TakeMessage(t.Context(), "t", "chat", "m1", f.admin(t)))
	if n := f.count(t, sallyport.EntryAdmin) - before; n != 4 {
		t.Errorf("%d entries for 4 messages that were taken", n)
	}
	f.pass(time.Hour)
	must(t, f.PruneWebhooks(t.Context(), f.now().Add(-2*time.Hour)))
	wantCode(t, "after pruning what is older", f.TakeMessage(t.Context(), "t", "chat", "m1", f.admin(t)), sallyport.Conflict)
	must(t, f.PruneWebhooks(t.Context(), f.now()))
	must(t, f.TakeMessage(t.Context(), "t", "chat", "m1", f.admin(t)))
}

// Whoever looks again from where it stopped misses no ticket that moved.
func testMoved(t *testing.T, f *fixture) {
	start := f.now()
	one := f.open(t, "one", transfer)
	f.pass(time.Second)
	two := f.open(t, "two", transfer)
	f.pass(time.Second)
	f.decide(t, one.ID, true)
	ids := func(since time.Time, most int) (out []string, last time.Time) {
		all, last, err := f.MovedTickets(t.Context(), "t", since, most)
		must(t, err)
		for _, tk := range all {
			out = append(out, tk.ID+" "+string(tk.State))
		}
		return out, last
	}
	all, last := ids(start, 9)
	same(t, "moved", all, []string{two.ID + " pending", one.ID + " approved"})
	same(t, "last", last, f.now())
	first, last := ids(start, 1)
	same(t, "the first", first, []string{two.ID + " pending"})
	same(t, "its time", last, f.now().Add(-time.Second))
	if none, last := ids(f.now().Add(1), 9); len(none) != 0 || !last.IsZero() {
		t.Errorf("nothing moved, yet %v at %v", none, last)
	}
	if other, _, err := f.MovedTickets(t.Context(), "u", start, 9); err != nil || len(other) != 0 {
		t.Errorf("another tenant's: %v, %v", other, err)
	}
}
