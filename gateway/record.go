package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/ending"
	"sallyport.dev/sallyport/gateway/outbound"
	"sallyport.dev/sallyport/gateway/refusal"
	"sallyport.dev/sallyport/limit/bulk"
	"sallyport.dev/sallyport/trace"
)

// A record follows one call from receive to respond.
type record struct {
	sallyport.Record
	g    *Gateway
	args json.RawMessage // canonical, not yet masked

	secrets []sallyport.Part // of arguments that would leave

	leave func()     // gives the caller's slot back, once admitted
	room  *bulk.Part // for a large answer

	tools uint64 // generation of the catalogue, before the tool was looked for

	// Set between begin and respond: what is owed to the ledger.
	open  *Finish
	vital bool // the call may act, and may be asked for again: what nobody knows of it must be unknown
}

// receive opens the record. Where records cannot be kept, no call is taken.
func (g *Gateway) receive(req sallyport.Request) (*record, error) {
	if err := g.Journal.Healthy(); err != nil {
		return nil, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Receive, Err: err,
			Message: "the gateway cannot keep its records, so it takes no calls",
			Hint:    "the operator finds the cause in the log and in `sallyport doctor`",
		}
	}
	id := req.CallID
	if id == "" {
		id = newID("call")
	}
	return &record{g: g, Record: sallyport.Record{
		CallID: id, Door: req.Door, Profile: req.Profile, Key: clip(req.Key, sallyport.MaxKey), Ticket: clip(req.Ticket, 128), Trace: trace.Continue(req.Trace), Parent: clip(req.Parent, 64),
		Kind: req.Operation.Kind, Target: clip(req.Operation.Target, 4<<10),
		Path: append(make([]sallyport.Step, 0, len(sallyport.Steps)), sallyport.Receive), Started: g.Now(),
	}}, nil
}

// reader is who the result goes to.
func (r *record) reader() string { return r.Tenant + "\x00" + r.Principal }

func (r *record) at(s sallyport.Step) { r.Path = append(r.Path, s) }

func (r *record) began(j job, fence int64) {
	r.open, r.vital = &Finish{Key: j.key, Fence: fence, State: sallyport.Unknown}, j.keyed && j.risk.Mutating()
}

func (r *record) done(out sallyport.Output) {
	r.Reached, r.Receipt = out.Connections, out.Receipt
	if r.open != nil {
		r.open.State, r.open.Output, r.open.IsError = sallyport.Done, out.Content, out.IsError
	}
	if out.Again && r.open != nil {
		r.open.State, r.open.Output = sallyport.Failed, nil
	}
	if out.Unclear {
		r.unclear()
	}
}

// unclear notes that the backend came back and that its answer does not tell
// whether the call acted. Its caller is shown that as the tool's error; whoever
// asks again under its key, or would try again because a tool's error means that
// nothing was done, is told that nobody knows.
func (r *record) unclear() {
	if r.open != nil && r.vital {
		r.open.State, r.open.Output, r.open.IsError = sallyport.Unknown, nil, false
		r.Message = "the answer cannot be used, and nobody knows whether the call acted"
	}
}

// failed notes what a backend's error means for the key.
func (r *record) failed(ctx context.Context, mutating bool, err error) error {
	if r.open != nil && (!mutating || errors.Is(err, sallyport.ErrNotExecuted)) {
		r.open.State = sallyport.Failed
	}
	return refusal.Backend(ctx, mutating, err)
}

// respond closes the record; it is deferred, so that no way out of Call avoids
// it. The outcome is durable before the caller sees it; if it cannot be
// stored, the caller does not see it.
func (r *record) respond(ctx context.Context, res *sallyport.Result, err *error) {
	defer r.room.Close()
	if p := recover(); p != nil {
		r.g.Log.Error("panic in a call", "call", r.CallID, "panic", p, "stack", string(debug.Stack()))
		*err = &sallyport.Error{Code: sallyport.Internal, Step: r.last(), Message: "internal error", Err: fmt.Errorf("panic: %v", p)}
	}
	r.at(sallyport.Respond)
	*err = r.lapse(ctx, *err)
	if *err != nil && r.CancelledBy == "" && sallyport.CodeOf(*err) != sallyport.Pending { // what waits is not over
		r.CancelledBy = ending.By(ctx)
	}
	*err = r.presentable(*err)
	r.Duration = r.g.Now().Sub(r.Started)
	if *err != nil {
		r.Code = sallyport.CodeOf(*err)
		r.Message = r.g.Sanitiser.Text((*err).Error())
	} else {
		r.ResultHash, r.IsError = digest(res.Content), res.IsError
		r.Waits = len(res.Questions)
	}
	if r.g.Ended != nil {
		r.g.Ended(r.Record)
	}
	if r.Code == sallyport.Unauthenticated && !r.g.strangers.Speak(&r.Record, r.g.Now()) {
		return
	}
	e := r.entry(sallyport.EntryOutcome, r.snapshot())
	var failure error
	if r.open != nil {
		r.open.Outcome = e
		if r.open.State == sallyport.Failed {
			r.open.Reason = refusal.Keep(*err)
		}
		failure = r.g.Ledger.Finish(context.WithoutCancel(ctx), *r.open)
	} else {
		failure = r.g.Journal.Append(e)
	}
	if failure != nil {
		r.g.Log.Error("cannot record an outcome", "call", r.CallID, "err", failure)
		*res = sallyport.Result{}
		*err = &sallyport.Error{
			Code: sallyport.OutcomeUnknown, Step: sallyport.Respond, CallID: r.CallID, Err: failure,
			Message: "the call's outcome could not be recorded, so it is not shown",
			Hint:    "the operator finds the cause in the log, by the call's id",
		}
	}
}

// presentable makes every failure an *sallyport.Error that carries the call's
// id. What is not ours shows nothing but that id.
func (r *record) presentable(err error) error {
	if err == nil {
		return nil
	}
	var e sallyport.Error
	if ours, ok := errors.AsType[*sallyport.Error](err); ok {
		e = *ours
	} else {
		e = sallyport.Error{Code: sallyport.Internal, Step: r.last(), Err: err}
	}
	e.CallID = r.CallID
	e.Message = r.g.Sanitiser.Text(e.Message) // it may quote an upstream
	if e.Code == sallyport.Internal {
		r.g.Log.Error("call failed", "call", r.CallID, "step", e.Step, "err", err)
		e.Message, e.Hint = "internal error", "the operator finds it in the log by call id "+r.CallID
	}
	return &e
}

func (r *record) last() sallyport.Step { return r.Path[len(r.Path)-1] }

// snapshot is the record as it is now, masked wherever the caller chose the words.
func (r *record) snapshot() sallyport.Record {
	s := r.Record
	if s.ToolDigest == "" { // no tool has this name; what is cut before it is masked may be half a secret
		s.Target, s.Upstream = clip(r.g.Sanitiser.Text(s.Target), 128), r.g.Sanitiser.Text(s.Upstream)
	}
	for _, said := range []*string{&s.Key, &s.Ticket, &s.Saga, &s.TraceState, &s.Baggage} { // by the caller
		if *said != "" && *said != s.CallID {
			*said = r.g.Sanitiser.Text(*said)
		}
	}
	if s.Risk != nil {
		masked := r.g.maskRisk(*s.Risk)
		s.Risk = &masked
	}
	s.Path = append([]sallyport.Step(nil), r.Path...)
	s.Reached = slices.Clone(r.Reached)
	for i := range s.Reached {
		s.Reached[i].Target = r.g.Sanitiser.Text(s.Reached[i].Target)
	}
	if r.args != nil {
		s.Args = outbound.Withhold(r.g.Sanitiser.JSON(r.args), r.secrets)
	}
	return s
}

// maskRisk masks a verdict for the record: it quotes the arguments.
func (g *Gateway) maskRisk(risk sallyport.Risk) sallyport.Risk {
	return risk.Reworded(g.Sanitiser.Text)
}

func (r *record) entry(kind sallyport.EntryKind, payload any) sallyport.Entry {
	b, err := json.Marshal(payload)
	if err != nil { // our own types, of which every field can be marshalled
		b = []byte(fmt.Sprintf("{\"error\":%q}", err))
	}
	tenant := r.Tenant
	if tenant == "" {
		tenant = sallyport.DefaultTenant // nobody was identified
	}
	return sallyport.Entry{Tenant: tenant, Time: r.g.Now(), Kind: kind, CallID: r.CallID, Payload: b}
}

// at gives an error of ours a step, if it has none.
func at(step sallyport.Step, err error) error {
	if e, ok := errors.AsType[*sallyport.Error](err); ok && e.Step == "" {
		c := *e
		c.Step = step
		return &c
	}
	return err
}

func digest[T ~string | ~[]byte](v T) string {
	sum := sha256.Sum256([]byte(v))
	return hex.EncodeToString(sum[:])
}

// newID makes an id that cannot be guessed: 128 random bits.
func newID(kind string) string {
	var b [16]byte
	rand.Read(b[:])
	return kind + "_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}
