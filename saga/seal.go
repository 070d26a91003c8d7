package saga

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/saga/plan"
)

// Agents are asked how an agent is now.
type Agents interface {
	Agent(ctx context.Context, tenant, id string) (sallyport.Agent, error)
}

// A Seal mints the credentials with which a saga's steps are called, one for
// each call, and is the only one that takes them: they are good for one minute,
// in this process, for one tool with one set of arguments, and only while the
// saga is driven by who minted it and its agent is in good standing. No other
// door knows a Seal.
type Seal struct {
	Agents    Agents
	Sagas     Reader
	Approvals Approvals
	Now       func() time.Time

	once sync.Once
	key  [32]byte

	mu   sync.Mutex
	live map[string]errand // by id
}

// A Reader finds a saga of a tenant, or code NotFound.
type Reader interface {
	Saga(ctx context.Context, tenant, id string) (sallyport.Saga, error)
}

// Approvals tell who approved a plan, and who is an admin today.
type Approvals interface {
	Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error)
	Admins(ctx context.Context, tenant string) ([]sallyport.Admin, error)
}

// An errand is what one credential is for.
type errand struct {
	ID      string    `json:"id"`
	Tenant  string    `json:"tenant"`
	Agent   string    `json:"agent"`
	Saga    string    `json:"saga"`
	Digest  string    `json:"digest"`
	Key     string    `json:"key"` // step, direction and attempt
	Args    string    `json:"args_sha256"`
	Fence   int64     `json:"fence"`
	Expires time.Time `json:"expires"`

	saga sallyport.Saga     // as it was when the call was made
	call sallyport.SagaCall // as it was judged
	fill plan.Filling
}

const (
	sealPrefix = "sallyport-saga."
	sealLife   = time.Minute

	// approvalLife is how long the approval of a plan covers steps that begin.
	approvalLife = 24 * time.Hour
)

// mint makes a credential; end takes it back.
func (s *Seal) mint(saga sallyport.Saga, call sallyport.SagaCall, key string, fill plan.Filling) (token string, end func()) {
	s.once.Do(func() { rand.Read(s.key[:]) })
	sum := sha256.Sum256(fill.Args)
	e := errand{
		ID: "errand_" + rand.Text(), Tenant: saga.Tenant, Agent: saga.Principal, Saga: saga.ID, Digest: saga.Digest, Key: key,
		Args: hex.EncodeToString(sum[:]), Fence: saga.Fence, Expires: s.Now().Add(sealLife), saga: saga, call: call, fill: fill,
	}
	payload, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings, a number and a time
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		s.live = map[string]errand{}
	}
	s.live[e.ID] = e
	enc := base64.RawURLEncoding
	return sealPrefix + enc.EncodeToString(payload) + "." + enc.EncodeToString(s.mac(payload)), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, e.ID)
	}
}

func (s *Seal) mac(payload []byte) []byte {
	m := hmac.New(sha256.New, s.key[:])
	m.Write(payload)
	return m.Sum(nil)
}

func unauthenticated(message string, err error) error {
	return &sallyport.Error{Code: sallyport.Unauthenticated, Step: sallyport.Authenticate, Message: message, Err: err,
		Hint: "an operator finds out why, and sends the saga on with `sallyport saga retry`"}
}

// Authenticate implements gateway.Authenticator, for the gateway of the steps
// alone.
func (s *Seal) Authenticate(ctx context.Context, profile, token string) (sallyport.Principal, error) {
	none := sallyport.Principal{}
	e, ok := s.open(token)
	switch {
	case !ok:
		return none, unauthenticated("the credential is none of this gateway's sagas", nil)
	case !s.Now().Before(e.Expires):
		return none, unauthenticated("the saga's credential has expired", nil)
	case profile != e.saga.Profile:
		return none, unauthenticated("the saga's credential is for another profile", nil)
	}
	now, err := s.Sagas.Saga(ctx, e.Tenant, e.Saga)
	if err != nil {
		return none, transient(err)
	}
	if now.Fence != e.Fence || now.Digest != e.Digest {
		return none, &sallyport.Error{Code: sallyport.InFlight, Step: sallyport.Authenticate,
			Message: "another gateway has taken the saga over", RetryAfter: time.Second}
	}
	agent, err := s.Agents.Agent(ctx, e.Tenant, e.Agent)
	switch {
	case err != nil && sallyport.CodeOf(err) != sallyport.NotFound:
		return none, transient(err)
	case err != nil || agent.ID != e.Agent || agent.Tenant != e.Tenant:
		return none, unauthenticated("the saga's agent does not exist any more", err)
	case agent.State != "active":
		return none, unauthenticated("the saga's agent is "+agent.State, nil)
	case now.Authorized.Before(agent.NotBefore):
		return none, unauthenticated("the saga's agent was rotated or suspended since the saga was authorised", nil)
	}
	return sallyport.Principal{
		Tenant: e.Tenant, ID: e.Agent, Roles: agent.Roles, OnBehalfOf: e.saga.OnBehalfOf, Actor: e.saga.Actor,
		TokenID: e.ID, Expires: e.Expires,
	}, nil
}

// transient is a failure that says nothing about the agent.
func transient(err error) error {
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Authenticate, Message: "the saga cannot be looked up now",
		Hint: "it is tried again", RetryAfter: time.Second, Err: err}
}

func (s *Seal) open(token string) (errand, bool) {
	var e errand
	rest, ok := strings.CutPrefix(token, sealPrefix)
	body, sum, two := strings.Cut(rest, ".")
	payload, err1 := base64.RawURLEncoding.Strict().DecodeString(body)
	mac, err2 := base64.RawURLEncoding.Strict().DecodeString(sum)
	if !ok || !two || err1 != nil || err2 != nil || !hmac.Equal(mac, s.mac(payload)) || json.Unmarshal(payload, &e) != nil {
		return e, false
	}
	return s.errand(e.ID)
}

func (s *Seal) errand(id string) (errand, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.live[id]
	return e, ok
}

// Enter implements gateway.Plans: a step speaks for its own saga only.
func (s *Seal) Enter(_ context.Context, who sallyport.Principal, profile, saga string) error {
	if e, ok := s.errand(who.TokenID); !ok || e.Saga != saga || e.saga.Profile != profile {
		return unknownSaga(saga)
	}
	return nil
}

// During implements gateway.Plans: a step speaks for its own saga, which is none
// of the agent's making.
func (s *Seal) During(context.Context, sallyport.Principal, time.Time) (bool, error) {
	return false, nil
}

// Judge implements gateway.Plans. The approval of a plan covers a call that is
// what the plan says, with values of the declared form in it, for what it was
// judged to be, if humans were asked for no less than today, and no more than a
// day later.
func (s *Seal) Judge(ctx context.Context, q gateway.Question, _ string, now []sallyport.Demand) gateway.PlanVerdict {
	e, ok := s.errand(q.Who.TokenID)
	if !ok {
		return gateway.PlanVerdict{Strayed: "the call is no step of a saga"}
	}
	v := gateway.PlanVerdict{Digest: e.Digest, Strayed: e.fill.Strayed}
	c, t := e.call, q.Tool
	same := t.Name == c.Tool && t.Version == c.Version && t.Digest == c.Digest && t.Origin.Endpoint == c.Endpoint && t.Origin.Credential == c.Credential
	judged := q.Risk.Level <= c.Risk.Level && (c.Risk.Irreversible || !q.Risk.Irreversible)
	fresh := s.Now().Before(e.saga.CreatedAt.Add(approvalLife))
	if e.saga.Ticket != "" && v.Strayed == "" && !e.fill.Open && same && judged && fresh && s.met(ctx, e.saga, now) {
		v.Ticket = e.saga.Ticket
	}
	return v
}

// met reports whether those who approved the plan were asked for all that is
// demanded now, and as admins of today, in the groups of today, still say it.
func (s *Seal) met(ctx context.Context, saga sallyport.Saga, now []sallyport.Demand) bool {
	if len(now) == 0 {
		return true
	}
	if !sallyport.Covered(saga.Demands, now) {
		return false
	}
	t, err := s.Approvals.Ticket(ctx, saga.Tenant, saga.Ticket)
	if err != nil {
		return false
	}
	admins, err := s.Approvals.Admins(ctx, saga.Tenant)
	if err != nil {
		return false
	}
	votes, _ := t.VotesToday(admins)
	return len(sallyport.Unmet(t.Widened(now), votes)) == 0
}

// A Sealed is the authorizer of the steps' gateway: a credential is good for
// its one call, and policies decide on that as on any other.
type Sealed struct {
	gateway.Authorizer
	Seal *Seal
}

// Authorize refuses another call than the one that the credential is for.
func (a Sealed) Authorize(q gateway.Question) (gateway.Verdict, error) {
	e, ok := a.Seal.errand(q.Who.TokenID)
	if !ok || q.Tool.Name != e.call.Tool || q.Action == gateway.ActionCall && !bytes.Equal(q.Args, e.fill.Args) {
		return gateway.Verdict{Reasons: []string{"the saga's credential is for another call"}}, nil
	}
	return a.Authorizer.Authorize(q)
}
