package adminapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

func (s *Server) listTickets(c call) (any, error) {
	limit, err := c.limit(1000) // nobody is to be pushed out of sight by a few agents
	if err != nil {
		return nil, err
	}
	state, err := oneOf("state", c.FormValue("state"), sallyport.TicketPending, sallyport.TicketApproved, sallyport.TicketRejected,
		sallyport.TicketExpired, sallyport.TicketWithdrawn, sallyport.TicketConsumed, sallyport.TicketVoid)
	if err != nil {
		return nil, err
	}
	tickets, groups, err := s.Tickets.ListTickets(c.Context(), state, limit)
	return TicketList{orEmpty(tickets), orEmpty(groups)}, err
}

// A TicketList holds tickets, newest first, and the same in groups. Deciding is
// for one ticket at a time: there is no way to decide on a group.
type TicketList struct {
	Tickets []sallyport.Ticket `json:"tickets"`
	Groups  []TicketGroup      `json:"groups"`
}

// A TicketGroup holds the tickets about one tool as it is, those unlike the
// others first.
type TicketGroup struct {
	Tool    string        `json:"tool"`
	Digest  string        `json:"digest"`
	Agents  []string      `json:"agents"`
	Tickets []TicketApart `json:"tickets"`
}

// A TicketApart says what sets a ticket apart from most of its group.
type TicketApart struct {
	Ticket  string   `json:"ticket"`
	Differs []string `json:"differs,omitempty"`
}

// oneOf is what to list by, such as a state: "" for all, or one that exists. A misspelt one
// would match nothing, and nothing looks like good news.
func oneOf[S ~string](what, state string, all ...S) (string, error) {
	if state == "" || slices.Contains(all, S(state)) {
		return state, nil
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = string(s)
	}
	return "", &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("there is no %s %.64q", what, state), Hint: "one of " + strings.Join(names, ", ")}
}

// A ShownTicket is a ticket with what a human decides on: the same view that
// every channel shows, as JSON and as text.
type ShownTicket struct {
	sallyport.Ticket
	View json.RawMessage `json:"view"`
	Text string          `json:"text"` // shortened where it is long
	Full string          `json:"full"` // all of it; its last word is needed where Text is shortened
	Card string          `json:"card"` // for a chat
}

func (s *Server) showTicket(c call) (any, error) {
	return s.Tickets.ShowTicket(c.Context(), c.PathValue("id"))
}

func (s *Server) decide(c call) (any, error) {
	d := sallyport.Decision{Ticket: c.PathValue("id"), By: c.admin, Door: "admin", At: time.Now()}
	switch c.PathValue("decision") {
	case "approve":
		d.Approve = true
	case "reject":
	default:
		return nil, &sallyport.Error{Code: sallyport.NotFound, Message: "no such decision: " + c.PathValue("decision"), Hint: "approve or reject"}
	}
	var in struct{ Reason, Hash, Seen string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	d.Reason, d.Hash, d.Seen = in.Reason, in.Hash, in.Seen
	return s.Tickets.Decide(c.Context(), d)
}

func (s *Server) search(c call) (any, error) {
	q := AuditQuery{
		Call: c.FormValue("call"), Principal: c.FormValue("principal"), Tool: c.FormValue("tool"),
		Kind: c.FormValue("kind"), Code: c.FormValue("code"), Text: c.FormValue("text"),
	}
	var err error
	if q.Limit, err = c.limit(100); err != nil {
		return nil, err
	}
	if _, err = oneOf("kind", q.Kind, sallyport.EntryKinds...); err != nil {
		return nil, err
	}
	if _, err = oneOf("code", q.Code, append([]sallyport.Code{"ok"}, sallyport.Codes...)...); err != nil {
		return nil, err
	}
	for name, at := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if v := c.FormValue(name); v != "" {
			if *at, err = moment(v); err != nil {
				return nil, &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("%s: %.40q is no time", name, v), Hint: "a time such as 2026-01-02T15:04:05Z, or how long ago, such as 2h"}
			}
		}
	}
	entries, err := s.Audit.Search(c.Context(), q)
	return struct {
		Entries []AuditEntry `json:"entries"`
	}{orEmpty(entries)}, err
}

// moment reads a time, or how long ago it was.
func moment(s string) (time.Time, error) {
	if ago, err := time.ParseDuration(s); err == nil {
		return time.Now().Add(-ago), nil
	}
	return time.Parse(time.RFC3339, s)
}

func (s *Server) retireLog(c call) (any, error) {
	var in struct{ Log, Reason string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if in.Log == "" || in.Reason == "" {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "log and reason are needed", Hint: "say which log, and why its gateway will not come back"}
	}
	n, err := s.Audit.Retire(c.Context(), in.Log, c.actor(), in.Reason)
	return struct {
		Entries int64 `json:"entries"`
	}{n}, err
}

func (c call) limit(deflt int) (int, error) {
	v := c.FormValue("limit")
	if v == "" {
		return deflt, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 10000 {
		return 0, &sallyport.Error{Code: sallyport.Invalid, Message: "bad limit " + strconv.Quote(v), Hint: "a number from 1 to 10000"}
	}
	return n, nil
}

func (s *Server) listReservations(c call) (any, error) {
	limit, err := c.limit(100)
	if err != nil {
		return nil, err
	}
	state, err := oneOf("state", c.FormValue("state"), append([]sallyport.ReservationState{sallyport.Reserved, sallyport.AwaitingApproval,
		sallyport.Executing, sallyport.Done, sallyport.Failed, sallyport.Unknown}, sallyport.ClosedReservations...)...)
	if err != nil {
		return nil, err
	}
	list, err := s.Reservations.ListReservations(c.Context(), state, limit)
	return struct {
		Reservations []sallyport.Reservation `json:"reservations"`
	}{orEmpty(list)}, err
}

func (s *Server) resolve(c call) (any, error) {
	var in struct {
		Principal, Tool, Key, Call, State, Reason string
		Result                                    json.RawMessage
	}
	if err := c.body(&in); err != nil {
		return nil, err
	}
	invalid := func(hint, format string, args ...any) (any, error) {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	state := sallyport.ReservationState(in.State)
	switch {
	case state != sallyport.Done && state != sallyport.Failed:
		return invalid("done (it acted) or failed (it did not)", "bad state %q", in.State)
	case strings.TrimSpace(in.Reason) == "":
		return invalid("give --reason", "a reason is needed: how do you know?")
	case len(in.Reason) > maxReason:
		return invalid("be brief", "the reason has more than %d bytes", maxReason)
	case in.Result != nil && state != sallyport.Done:
		return invalid("leave the result out", "a call that did not act has no result")
	case in.Result != nil && !isResult(in.Result):
		return invalid(`such as {"content":[{"type":"text","text":"paid"}]}`, "the result is not that of a tool: an object with a list named content")
	}
	key := sallyport.ReservationKey{Tenant: s.Tenant, Principal: in.Principal, Tool: in.Tool, Key: in.Key}
	return struct{}{}, s.Reservations.ResolveReservation(c.Context(), Resolution{key, in.Call, state, c.actor(), in.Reason, in.Result})
}

// maxReason bounds what an operator says.
const maxReason = 2000

// isResult reports whether a result is one that a repeated call can get.
func isResult(b json.RawMessage) bool {
	var r struct {
		Content *[]json.RawMessage `json:"content"`
	}
	canonical, err := sallyport.Canonical(b)
	return err == nil && json.Unmarshal(canonical, &r) == nil && r.Content != nil
}
