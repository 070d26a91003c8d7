package passkey

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
)

// CheckRecord checks every signature that the record keeps, offline: that it
// verifies, that its ticket was opened with that hash, that the admin had
// enrolled that key and it was not removed before; and that no decision claims
// a signature which is not there. It returns how many signatures stand. What
// was erased cannot be checked and is left out.
func CheckRecord(ctx context.Context, src Source) (stand int, problems []audit.Problem, err error) {
	r := reading{tickets: map[string]string{}, keys: map[string]keyLife{}}
	logs, err := src.Logs(ctx)
	if err != nil {
		return 0, nil, err
	}
	for _, l := range logs {
		if err := src.Rows(ctx, l.Writer, 0, func(row audit.Row) error { r.read(row); return nil }); err != nil {
			return 0, nil, err
		}
	}
	signatures := map[string]bool{} // of those that stand: ticket, admin, passkey
	for _, s := range r.signed {
		if what := r.wrong(s); what != "" {
			r.add(s.row, fmt.Sprintf("the signature of ticket %s: %s", s.Ticket, what))
			continue
		}
		stand++
		signatures[s.Ticket+"\x00"+s.Admin+"\x00"+s.Passkey] = true
	}
	for _, v := range r.votes {
		if !signatures[v.ticket+"\x00"+v.By+"\x00"+v.Passkey] {
			r.add(v.row, fmt.Sprintf("the approval of ticket %s by %s claims a signature that is not in the record, or does not stand", v.ticket, v.By))
		}
	}
	return stand, r.problems, nil
}

// A Source reads the record, log by log. (store/sqlite)
type Source interface {
	Logs(ctx context.Context) ([]audit.State, error)
	Rows(ctx context.Context, writer string, from int64, fn func(audit.Row) error) error
}

// A reading is what the record says about passkeys.
type reading struct {
	tickets  map[string]string  // hash by id
	keys     map[string]keyLife // by id
	signed   []signedRow
	votes    []voteRow
	problems []audit.Problem
}

type keyLife struct {
	Enrolment
	from, until time.Time // until is zero while it is enrolled
}

type signedRow struct {
	Signed
	row audit.Row
}

type voteRow struct {
	sallyport.Vote
	ticket string
	row    audit.Row
}

func (r *reading) add(row audit.Row, what string) {
	r.problems = append(r.problems, audit.Problem{Writer: row.Writer, Seq: row.Seq, What: what})
}

func (r *reading) read(row audit.Row) {
	if row.Payload == nil {
		return
	}
	switch row.Kind {
	case sallyport.EntryTicket:
		var t struct{ ID, Hash string }
		if json.Unmarshal(row.Payload, &t) == nil && t.ID != "" && t.Hash != "" {
			r.tickets[t.ID] = t.Hash
		}
	case sallyport.EntryDecision:
		var m struct {
			Ticket string
			Vote   *sallyport.Vote
		}
		if json.Unmarshal(row.Payload, &m) == nil && m.Vote != nil && m.Vote.Passkey != "" {
			r.votes = append(r.votes, voteRow{*m.Vote, m.Ticket, row})
		}
	case sallyport.EntryAdmin:
		r.change(row)
	default:
	}
}

func (r *reading) change(row audit.Row) {
	var c struct {
		Action, Target string
		Detail         json.RawMessage
	}
	if json.Unmarshal(row.Payload, &c) != nil {
		return
	}
	switch c.Action {
	case ActionSign:
		s, err := ParseSigned(c.Detail)
		if err != nil {
			r.add(row, fmt.Sprintf("the signature of ticket %s cannot be read: %v", c.Target, err))
			return
		}
		r.signed = append(r.signed, signedRow{s, row})
	case "passkeys add":
		var e Enrolment
		if json.Unmarshal(c.Detail, &e) == nil && len(e.PublicKey) > 0 { // else it is about the link
			r.keys[c.Target] = keyLife{Enrolment: e, from: row.Time}
		}
	case "passkeys remove":
		k := r.keys[c.Target]
		k.until = row.Time
		r.keys[c.Target] = k
	}
}

// wrong says why a signature does not stand, "" if it does.
func (r *reading) wrong(s signedRow) string {
	if err := s.Verify(); err != nil {
		return err.Error()
	}
	k, known := r.keys[s.Passkey]
	switch hash, opened := r.tickets[s.Ticket]; {
	case opened && hash != s.Hash:
		return "it is for another hash than the ticket's"
	case !opened:
		return "the record does not say that such a ticket was opened"
	case !known || k.Admin != s.Admin || !bytes.Equal(k.PublicKey, s.PublicKey) || k.RPID != s.RPID:
		return "the record does not say that " + s.Admin + " enrolled this passkey"
	case !k.until.IsZero() && k.until.Before(s.row.Time):
		return "the passkey had been removed before"
	}
	return ""
}
