package adminapi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

func (s *Server) listTickets(c call) (any, error) {
	limit, err := c.limit(100)
	if err != nil {
		return nil, err
	}
	state, err := oneOf(c.FormValue("state"), sallyport.TicketPending, sallyport.TicketApproved, sallyport.TicketRejected,
		sallyport.TicketExpired, sallyport.TicketWithdrawn, sallyport.TicketConsumed, sallyport.TicketVoid)
	if err != nil {
		return nil, err
	}
	tickets, err := s.Tickets.ListTickets(c.Context(), state, limit)
	return struct {
		Tickets []sallyport.Ticket `json:"tickets"`
	}{orEmpty(tickets)}, err
}

// oneOf is a state to list by: "" for all, or one that exists. A misspelt one
// would match nothing, and nothing looks like good news.
func oneOf[S ~string](state string, all ...S) (string, error) {
	if state == "" || slices.Contains(all, S(state)) {
		return state, nil
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = string(s)
	}
	return "", &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("there is no state %q", state), Hint: "one of " + strings.Join(names, ", ")}
}

// A ShownTicket is a ticket with the text that a human decides on.
type ShownTicket struct {
	sallyport.Ticket
	Text string `json:"text"`
}

func (s *Server) showTicket(c call) (any, error) {
	t, text, err := s.Tickets.ShowTicket(c.Context(), c.PathValue("id"))
	return ShownTicket{t, text}, err
}

func (s *Server) decide(c call) (any, error) {
	d := sallyport.Decision{Ticket: c.PathValue("id"), By: c.admin, At: time.Now()}
	switch c.PathValue("decision") {
	case "approve":
		d.Approve = true
	case "reject":
	default:
		return nil, &sallyport.Error{Code: sallyport.NotFound, Message: "no such decision: " + c.PathValue("decision"), Hint: "approve or reject"}
	}
	var in struct{ Reason string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	d.Reason = in.Reason
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
	for name, at := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if v := c.FormValue(name); v != "" {
			if *at, err = time.Parse(time.RFC3339, v); err != nil {
				return nil, &sallyport.Error{Code: sallyport.Invalid, Message: name + ": " + err.Error(), Hint: "a time such as 2026-01-02T15:04:05Z"}
			}
		}
	}
	entries, err := s.Audit.Search(c.Context(), q)
	return struct {
		Entries []AuditEntry `json:"entries"`
	}{orEmpty(entries)}, err
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
	state, err := oneOf(c.FormValue("state"), sallyport.Reserved, sallyport.AwaitingApproval, sallyport.Executing,
		sallyport.Done, sallyport.Failed, sallyport.Unknown)
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
		Principal, Tool, Key, State, Reason string
	}
	if err := c.body(&in); err != nil {
		return nil, err
	}
	state := sallyport.ReservationState(in.State)
	if state != sallyport.Done && state != sallyport.Failed {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "bad state " + strconv.Quote(in.State), Hint: "done (it acted) or failed (it did not)"}
	}
	if in.Reason == "" {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "a reason is needed: how do you know?", Hint: "give --reason"}
	}
	key := sallyport.ReservationKey{Tenant: s.Tenant, Principal: in.Principal, Tool: in.Tool, Key: in.Key}
	return struct{}{}, s.Reservations.ResolveReservation(c.Context(), key, state, c.actor(), in.Reason)
}
