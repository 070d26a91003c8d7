package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// The test vector that the specification's own libraries share.
func TestStandardWebhooksVector(t *testing.T) {
	key, err := parseSecret([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	if err != nil {
		t.Fatal(err)
	}
	const id, at, body, want = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, `{"test": 2432232314}`, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := sign(key, id, at, []byte(body)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s, err := readSeal(http.Header{headerID: {id}, headerTimestamp: {"1614265330"}, headerSignature: {"v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= " + want}})
	if err != nil || !s.by(key, []byte(body)) || s.by(key, []byte(body+" ")) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestParseSecret(t *testing.T) {
	for text, fine := range map[string]bool{
		NewSecret(): true, NewSecret() + "\n": true, "whsec_" + strings.Repeat("A", 32): true,
		"": false, "hunter2": false, "whsec_": false, "whsec_AAAA": false, "whsec_" + strings.Repeat("A", 88): false, "whsec_" + strings.Repeat("?", 32): false,
		strings.TrimPrefix(NewSecret(), "whsec_"): false,
	} {
		if _, err := parseSecret([]byte(text)); (err == nil) != fine {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What has happened is read from the ticket alone.
func TestHappened(t *testing.T) {
	at := time.Unix(1, 0)
	votes := func(names ...string) (all []sallyport.Vote) {
		for _, n := range names {
			all = append(all, sallyport.Vote{By: n, Approve: true})
		}
		return all
	}
	for name, tt := range map[string]struct {
		ticket sallyport.Ticket
		want   string
	}{
		"pending":          {sallyport.Ticket{State: sallyport.TicketPending}, "opened"},
		"one of two":       {sallyport.Ticket{State: sallyport.TicketPending, Votes: votes("a")}, "opened voted_1"},
		"approved by two":  {sallyport.Ticket{State: sallyport.TicketApproved, DecidedBy: "b", Votes: votes("a", "b")}, "opened voted_1 decided"},
		"and run":          {sallyport.Ticket{State: sallyport.TicketConsumed, DecidedBy: "b", Votes: votes("a", "b")}, "opened voted_1 decided"},
		"expired with one": {sallyport.Ticket{State: sallyport.TicketExpired, DecidedBy: "clock", Votes: votes("a")}, "opened voted_1 decided"},
		"rejected":         {sallyport.Ticket{State: sallyport.TicketRejected, DecidedBy: "a", Votes: votes("a")}, "opened decided"},
		"withdrawn":        {sallyport.Ticket{State: sallyport.TicketWithdrawn, DecidedBy: "agent", Votes: votes("a")}, "opened voted_1 withdrawn"},
		"escalated":        {sallyport.Ticket{State: sallyport.TicketPending, EscalatedAt: at}, "opened escalated"},
		"void":             {sallyport.Ticket{State: sallyport.TicketVoid, DecidedBy: "a", Votes: votes("a")}, "opened decided voided"},
	} {
		tt.ticket.ID = "tkt.1/x"
		var got []string
		for _, h := range happened(tt.ticket) {
			id, ok := strings.CutPrefix(h.id, "msg_tkt-1-x_")
			if !ok || !strings.HasPrefix(id, string(h.event)) || !idRule.MatchString(h.id) {
				t.Errorf("%s: %+v", name, h)
			}
			got = append(got, id)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", name, got, tt.want)
		}
	}
}

// Whatever is in the headers, reading them does not panic, and what they say
// signs nothing that the key did not.
func FuzzHeaders(f *testing.F) {
	key := make([]byte, 32)
	f.Add("msg_1", "1614265330", sign(key, "msg_1", 1614265330, []byte("{}")), "{}")
	f.Add("msg.1", "-1", "v1,", "")
	f.Add("", "", "v2,x v1,AAAA", "x")
	f.Fuzz(func(t *testing.T, id, at, sig, body string) {
		s, err := readSeal(http.Header{headerID: {id}, headerTimestamp: {at}, headerSignature: {sig}})
		if err != nil {
			return
		}
		_ = s.fresh(time.Unix(1614265330, 0))
		if strings.ContainsAny(s.id, ". ") || s.at < 0 || len(s.signatures) > maxSignatures {
			t.Errorf("%+v", s)
		}
		if s.by(key, []byte(body)) && !strings.Contains(sig, sign(key, id, s.at, []byte(body))) {
			t.Errorf("%q %q %q signs %q", id, at, sig, body)
		}
	})
}

// A body that is taken says one ticket, one hash, one decision and one user.
func FuzzDecision(f *testing.F) {
	f.Add(`{"ticket":"tkt_1","hash":"` + strings.Repeat("a", 64) + `","decision":"approve","by":"U1","reason":""}`)
	f.Add(`{"ticket":"a","ticket":"b"}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, body string) {
		d, err := parseDecision([]byte(body))
		if err == nil && (d.Ticket == "" || len(d.Hash) != 64 || d.By == "" || d.Decision != "approve" && d.Decision != "reject") {
			t.Errorf("%q: %+v", body, d)
		}
		if err == nil && strings.Count(body, "{") > 1+strings.Count(d.Ticket+d.Hash+d.By+d.Reason, "{") {
			t.Errorf("%q has more than one object", body)
		}
	})
}
