package webhook

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/limit/gcra"
)

// DecisionsPath is where decisions come in.
const DecisionsPath = "/api/v1/webhooks/decisions"

// MaxDecision bounds the body of a decision.
const MaxDecision = 16 << 10

// Messages remember what came in. (store/sqlite)
type Messages interface {
	// TakeMessage notes a message with its entry; code Conflict if its id came
	// before.
	TakeMessage(ctx context.Context, tenant, hook, id string, e sallyport.Entry) error

	// ForgetMessage lets a message come again.
	ForgetMessage(ctx context.Context, tenant, hook, id string) error

	// AppendEntries makes entries durable.
	AppendEntries(ctx context.Context, entries ...sallyport.Entry) error
}

// Tickets are what is decided. (approval)
type Tickets interface {
	Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error)
	Decide(ctx context.Context, tenant string, d sallyport.Decision) (sallyport.Ticket, error)
}

// An Inbox takes decisions. It is an http.Handler for POST DecisionsPath.
type Inbox struct {
	tenant   string
	hooks    []Hook
	messages Messages
	tickets  Tickets
	secrets  Secrets
	now      func() time.Time
	log      *slog.Logger

	peers      *gcra.Table  // requests of one address
	refusals   *gcra.Table  // refusals that are told one by one
	accepted   *gcra.Table  // signed messages of one hook
	unrecorded atomic.Int64 // refusals since the last one that was told
}

// NewInbox returns an inbox for the hooks that may decide. now and log may be nil.
func NewInbox(tenant string, hooks []Hook, messages Messages, tickets Tickets, secrets Secrets, now func() time.Time, log *slog.Logger) *Inbox {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	in := &Inbox{tenant: tenant, messages: messages, tickets: tickets, secrets: secrets, now: now, log: log,
		peers:    gcra.NewTable(gcra.PerSecond(5, 50), 4096),
		refusals: gcra.NewTable(gcra.PerSecond(2, 100), 16),
		accepted: gcra.NewTable(gcra.PerSecond(10, 100), 64),
	}
	for _, h := range hooks {
		if h.Decisions != nil {
			in.hooks = append(in.hooks, h)
		}
	}
	return in
}

// A decision is the body of a message that comes in.
type decision struct {
	Ticket   string `json:"ticket"`
	Hash     string `json:"hash"`
	Decision string `json:"decision"`
	By       string `json:"by"`
	Reason   string `json:"reason"`
}

// parseDecision reads a body, strictly: one object, each name once and known.
func parseDecision(body []byte) (d decision, err error) {
	if err := json.Unmarshal(body, &d, json.RejectUnknownMembers(true)); err != nil {
		return d, invalid("the body is not a decision", `send {"ticket", "hash", "decision": "approve" or "reject", "by", "reason"}, each once`)
	}
	switch {
	case d.Ticket == "" || len(d.Ticket) > 128:
		return d, invalid("ticket is missing", "name one ticket")
	case len(d.Hash) != 64:
		return d, invalid("hash is not one of a ticket", "repeat ticket.hash as it was sent: 64 characters")
	case d.Decision != "approve" && d.Decision != "reject":
		return d, invalid("decision is neither approve nor reject", "")
	case d.By == "" || len(d.By) > 256:
		return d, invalid("by is missing", "name the user who decides, as the tool knows him or her")
	}
	return d, nil
}

func invalid(what, hint string) error {
	return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Validate, Message: what, Hint: hint}
}

func denied(format string, args ...any) error {
	return &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Authorize, Message: fmt.Sprintf(format, args...),
		Hint: "the operator decides what it may: approvals.webhooks in sallyport.yaml"}
}

// A delivery is one request as far as it is known.
type delivery struct {
	remote string
	seal   seal
	hook   string // whose signature it bears, "" if nobody's
	decision
}

// ServeHTTP takes one decision.
func (in *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := delivery{remote: host(r.RemoteAddr)}
	now := clock(in.now)
	if !in.peers.Add(d.remote, now) {
		in.unrecorded.Add(1) // a flood does not fill the record; its size is told
		reply(w, sallyport.Ticket{}, &sallyport.Error{Code: sallyport.RateLimited, Step: sallyport.Admit, Message: "too many requests", RetryAfter: time.Second})
		return
	}
	t, err := in.take(w, r, &d, now)
	if err != nil {
		in.refuse(r.Context(), d, err, now)
	}
	reply(w, t, err)
}

func host(addr string) string {
	h, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return h
}

// take checks a message in an order in which nothing is believed before the
// signature: size, headers, signature, time, then the body.
func (in *Inbox) take(w http.ResponseWriter, r *http.Request, d *delivery, now time.Time) (t sallyport.Ticket, err error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Second)) // a recorder in a test has none
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxDecision))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return t, &sallyport.Error{Code: sallyport.TooLarge, Step: sallyport.Admit, Message: fmt.Sprintf("a decision has at most %d bytes", MaxDecision)}
	} else if err != nil {
		return t, invalid("the body did not arrive", "")
	}
	if d.seal, err = readSeal(r.Header); err != nil {
		return t, err
	}
	h, err := in.sender(r.Context(), d.seal, body)
	if err != nil {
		return t, err
	}
	d.hook = h.Name
	if !d.seal.fresh(now) {
		return t, unauthenticated(fmt.Sprintf("the message is more than %s old, or from the future", Tolerance), "send it when it is signed, and set the clock")
	}
	if !in.accepted.Add(h.Name, now) {
		return t, &sallyport.Error{Code: sallyport.RateLimited, Step: sallyport.Admit, Message: "too many decisions", RetryAfter: time.Second}
	}
	if d.decision, err = parseDecision(body); err != nil {
		return t, err
	}
	return in.decide(r.Context(), h, *d)
}

func unauthenticated(what, hint string) error {
	return &sallyport.Error{Code: sallyport.Unauthenticated, Step: sallyport.Authenticate, Message: what, Hint: hint}
}

// sender finds the one hook whose secret signed the message.
func (in *Inbox) sender(ctx context.Context, s seal, body []byte) (found Hook, err error) {
	n := 0
	for _, h := range in.hooks {
		text, err := in.secrets.Resolve(ctx, in.tenant, h.Decisions.Secret)
		if err != nil && sallyport.CodeOf(err) != sallyport.NotFound {
			return Hook{}, err
		}
		key, bad := parseSecret(text)
		if err != nil || bad != nil {
			in.log.Warn("webhook: no decision of this hook can be checked", "hook", h.Name, "err", errors.Join(err, bad))
			continue
		}
		if s.by(key, body) {
			found, n = h, n+1
		}
	}
	switch n {
	case 0:
		return Hook{}, unauthenticated("the signature is by no webhook that may decide", "sign id, timestamp and the very bytes of the body with the hook's own secret")
	case 1:
		return found, nil
	}
	return Hook{}, unauthenticated("several webhooks share this secret, so nobody knows whose word it is", "give each a secret of its own")
}

// decide takes a decision whose sender is known.
func (in *Inbox) decide(ctx context.Context, h Hook, d delivery) (sallyport.Ticket, error) {
	admin, mapped := h.Decisions.Users[d.By]
	e, err := audit.AdminEntry(in.tenant, sallyport.Change{Action: "webhooks decide", By: "webhook:" + h.Name, Target: d.Ticket, Reason: d.Reason,
		Detail: map[string]any{"decision": d.Decision, "user": d.By, "admin": admin, "message": d.seal.id, "remote": d.remote}})
	if err != nil {
		return sallyport.Ticket{}, err
	}
	if err := in.messages.TakeMessage(ctx, in.tenant, h.Name, d.seal.id, e); err != nil {
		return sallyport.Ticket{}, err
	}
	if !mapped {
		return sallyport.Ticket{}, denied("webhook %s has nobody for the user %.64q", h.Name, d.By)
	}
	t, err := in.tickets.Ticket(ctx, in.tenant, d.Ticket)
	if err == nil {
		err = h.Decisions.allow(h.Name, t, d.decision)
	}
	if err == nil {
		t, err = in.tickets.Decide(ctx, in.tenant, sallyport.Decision{Ticket: t.ID, By: admin, Approve: d.Decision == "approve", Reason: d.Reason, Door: "webhook", Hash: d.Hash})
	}
	switch sallyport.CodeOf(err) {
	case sallyport.Unavailable, sallyport.Canceled:
		if err != nil { // it may come again: it was not decided, or the ticket is no longer pending
			err = errors.Join(err, in.messages.ForgetMessage(context.WithoutCancel(ctx), in.tenant, h.Name, d.seal.id))
		}
	default:
	}
	return t, err
}

// allow holds a decision against what the hook may, and against the ticket
// that it says it is about.
func (c Decisions) allow(hook string, t sallyport.Ticket, d decision) error {
	if subtle.ConstantTimeCompare([]byte(t.Hash), []byte(d.Hash)) != 1 {
		return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Approve, Ticket: t.ID, Message: "the hash is not this ticket's: somebody decided on something else",
			Hint: "repeat ticket.hash as it was sent"}
	}
	if d.Decision == "reject" {
		if !c.Reject {
			return denied("webhook %s may not reject", hook)
		}
		return nil
	}
	switch {
	case !c.Approve:
		return denied("webhook %s may not approve", hook)
	case t.Risk.Irreversible && !c.Irreversible:
		return denied("webhook %s may not approve what cannot be undone", hook)
	case t.Risk.Level > c.Risk:
		return denied("webhook %s may approve up to %s, and this is %s", hook, c.Risk, t.Risk.Level)
	}
	return nil
}

// refuse puts a refusal on record. A flood of them is counted instead.
func (in *Inbox) refuse(ctx context.Context, d delivery, err error, now time.Time) {
	by := "webhook"
	if d.hook != "" {
		by += ":" + d.hook
	} else if !in.refusals.Add("", now) {
		in.unrecorded.Add(1)
		return
	}
	shown, ok := errors.AsType[*sallyport.Error](err)
	if !ok {
		in.log.Error("webhook: a decision failed", "err", err)
		shown = &sallyport.Error{Code: sallyport.Internal, Message: "internal error"}
	}
	detail := map[string]any{"code": shown.Code, "remote": d.remote}
	if d.hook != "" {
		detail["message"], detail["user"], detail["decision"] = d.seal.id, d.By, d.Decision
	}
	if n := in.unrecorded.Swap(0); n > 0 {
		detail["unrecorded"] = n
	}
	e, err := audit.AdminEntry(in.tenant, sallyport.Change{Action: "webhooks refuse", By: by, Target: d.Ticket, Reason: shown.Message, Detail: detail})
	if err = errors.Join(err, in.messages.AppendEntries(context.WithoutCancel(ctx), e)); err != nil {
		in.log.Error("webhook: a refusal is not on record", "err", err)
	}
}

var statuses = map[sallyport.Code]int{
	sallyport.Unauthenticated: 401, sallyport.Invalid: 400, sallyport.Denied: 403, sallyport.Rejected: 403, sallyport.NotFound: 404,
	sallyport.Conflict: 409, sallyport.TooLarge: 413, sallyport.RateLimited: 429, sallyport.Unavailable: 503, sallyport.Canceled: 503,
}

// decided is the answer to a decision that was taken, refusal to one that was not.
type decided struct {
	Ticket string                `json:"ticket"`
	State  sallyport.TicketState `json:"state"`
}

type refusal struct {
	Code    sallyport.Code `json:"code"`
	Message string         `json:"message"`
	Hint    string         `json:"hint,omitempty"`
}

func reply(w http.ResponseWriter, t sallyport.Ticket, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	status, v := http.StatusOK, any(decided{t.ID, t.State})
	if err != nil {
		e, ok := errors.AsType[*sallyport.Error](err)
		if !ok {
			e = &sallyport.Error{Code: sallyport.Internal, Message: "internal error", Hint: "the gateway's log says more"}
		}
		if status, ok = statuses[e.Code]; !ok {
			status = http.StatusInternalServerError
		}
		if e.RetryAfter > 0 {
			w.Header().Set("Retry-After", fmt.Sprintf("%.0f", max(1, e.RetryAfter.Seconds())))
		}
		v = refusal{e.Code, e.Message, e.Hint}
	}
	var out bytes.Buffer
	if json.MarshalWrite(&out, v) != nil {
		status = http.StatusInternalServerError
	}
	w.WriteHeader(status)
	w.Write(out.Bytes())
}
