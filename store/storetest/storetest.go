// Package storetest says what every store must do. A store's own test is a few
// lines: it tells Run how to open itself.
package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
)

// A Store is all that a gateway keeps.
type Store interface {
	gateway.Ledger
	gateway.Past
	Approvals
	Upkeep
	Agents
	Admins
	Pins
	Servers
	Secrets
	gateway.Taints
	TenantCalls
	Record
	Passkeys
	Links
	Outbox
	Inbox
	Sagas
	Close() error
}

// Approvals is what package approval needs besides Ticket.
type Approvals interface {
	ListTickets(ctx context.Context, f store.TicketFilter) ([]sallyport.Ticket, error)
	Decide(ctx context.Context, tenant string, d sallyport.Decision, run time.Duration) (sallyport.Ticket, error)
	Withdraw(ctx context.Context, tenant, id, by, reason string) (sallyport.Ticket, error)
	Expire(ctx context.Context, now time.Time) ([]sallyport.Ticket, error)
	TicketBounds
}

// TicketBounds are what an approval can lose, and what may be asked for.
type TicketBounds interface {
	Void(ctx context.Context, tenant, id, by, reason string) (sallyport.Ticket, error)
	Escalate(ctx context.Context, before time.Time, groups []string) ([]sallyport.Ticket, error)
	SetTicketRules(r store.TicketRules)
}

// Upkeep looks after reservations.
type Upkeep interface {
	Writer() string
	Recover(ctx context.Context, writer string) (int, error)
	Reservations(ctx context.Context, f store.ReservationFilter) ([]sallyport.Reservation, error)
	Resolve(ctx context.Context, r store.Resolution) error
	Prune(ctx context.Context, before time.Time) (int, error)
	ScriptKeys(ctx context.Context, tenant, principal, root string) ([]sallyport.ReservationKey, error)
}

// Agents are the callers.
type Agents interface {
	PutAgent(ctx context.Context, a sallyport.Agent, e sallyport.Entry) error
	SetAgentState(ctx context.Context, tenant, id, state string, notBefore time.Time, e sallyport.Entry) error
	Agent(ctx context.Context, tenant, id string) (sallyport.Agent, error)
	Agents(ctx context.Context, tenant string) ([]sallyport.Agent, error)
}

// Admins are the humans.
type Admins interface {
	PutAdmin(ctx context.Context, a sallyport.Admin, e sallyport.Entry) error
	DeleteAdmin(ctx context.Context, tenant, name string, e sallyport.Entry) error
	Admin(ctx context.Context, tenant, name string) (sallyport.Admin, error)
	Admins(ctx context.Context, tenant string) ([]sallyport.Admin, error)
}

// Pins are agreed tool definitions.
type Pins interface {
	PutPins(ctx context.Context, pins []store.Pin, e sallyport.Entry) error
	Pin(ctx context.Context, tenant, server, name string) (store.Pin, error)
	Pins(ctx context.Context, tenant, server string) ([]store.Pin, error)
	DeletePin(ctx context.Context, tenant, server, name string, e sallyport.Entry) error
}

// Servers are upstreams added at run time.
type Servers interface {
	PutServer(ctx context.Context, v store.Server, e sallyport.Entry) error
	Servers(ctx context.Context, tenant string) ([]store.Server, error)
	DeleteServer(ctx context.Context, tenant, name string, e sallyport.Entry) error
}

// Secrets are ciphertexts.
type Secrets interface {
	PutSecret(ctx context.Context, tenant, name string, ciphertext []byte, e sallyport.Entry) error
	Secret(ctx context.Context, tenant, name string) ([]byte, error)
	Secrets(ctx context.Context, tenant string) ([]store.SecretInfo, error)
	DeleteSecret(ctx context.Context, tenant, name string, e sallyport.Entry) error
}

// Record is the audit log.
type Record interface {
	audit.Source
	audit.Appender
	EraseAudit(ctx context.Context, writer string, seq int64, by, reason string) error
}

// A Place is one empty database.
type Place interface {
	// Open opens the database as one more process would.
	Open(t *testing.T, clock func() time.Time) Store

	// PublicKeys are those of the audit logs in it.
	PublicKeys() []string

	// Heads are the audit heads in the second place.
	Heads(t *testing.T) []byte
}

// Run runs the suite. At the end of each test the audit log is verified.
func Run(t *testing.T, newPlace func(t *testing.T) Place) {
	for _, tt := range []struct {
		name string
		fn   func(*testing.T, *fixture)
	}{
		{"Reservation", testReservation},
		{"Conflicts", testConflicts},
		{"Repeats", testRepeats},
		{"ScriptKeys", testScriptKeys},
		{"Lease", testLease},
		{"Unchanged", testUnchanged},
		{"Fence", testFence},
		{"Outputs", testOutputs},
		{"Reasons", testReasons},
		{"Canceled", testCanceled},
		{"OpenTwice", testOpenTwice},
		{"OpenAfter", testOpenAfter},
		{"TicketStates", testTicketStates},
		{"NoLongerNeeded", testNoLongerNeeded},
		{"TO22_AlteredArguments", testAltered},
		{"TO24_ParallelDuplicates", testParallel},
		{"OneKey", testOneKey},
		{"Together", testTogether},
		{"Foreseen", testForeseen},
		{"OddTogether", testOddTogether},
		{"Panic", testPanic},
		{"OddTexts", testOddTexts},
		{"FO27_Digits", testDigits},
		{"FO59_DecideOnce", testDecideOnce},
		{"FO59_Twins", testTwins},
		{"BothClocks", testBothClocks},
		{"Withdraw", testWithdraw},
		{"ListTickets", testListTickets},
		{"Quorum", testQuorum},
		{"QuorumInParallel", testQuorumInParallel},
		{"FirstRejectionRejects", testFirstRejection},
		{"NoSelfApproval", testNoSelfApproval},
		{"LateVotes", testLateVotes},
		{"TO23_Standing", testStanding},
		{"TO23_AgentStopped", testAgentStopped},
		{"Void", testVoid},
		{"Escalate", testEscalate},
		{"TO27_CoolDown", testCoolDown},
		{"TO27_CoolDownWithoutTicket", testCoolDownWithoutTicket},
		{"TO28_Flood", testFlood},
		{"TO28_AskedAndTakenBack", testAskedAndTakenBack},
		{"Recover", testRecover},
		{"Resolve", testResolve},
		{"Prune", testPrune},
		{"ReservationsOfClosedTickets", testReservationsOfClosedTickets},
		{"PruneMany", testPruneMany},
		{"TO37_OpenCalls", testOpenCalls},
		{"KeptOutputs", testKeptOutputs},
		{"TO27_Windows", testWindows},
		{"TO27_WindowRace", testWindowRace},
		{"Quotas", testQuotas},
		{"QuotaAtMidnight", testQuotaAtMidnight},
		{"Twins", testTwinCalls},
		{"Linearizable", testLinear},
		{"LinearizableMutants", testLinearMutants},
		{"Tenants", testTenants},
		{"Agents", testAgents},
		{"Admins", testAdmins},
		{"Pins", testPins},
		{"Servers", testServers},
		{"Secrets", testSecrets},
		{"TO16_Taints", testTaints},
		{"FO42_TenantCalls", testTenantCalls},
		{"Record", testRecord},
		{"Search", testSearch},
		{"Export", testExport},
		{"Erase", testErase},
		{"EraseTogether", testEraseTogether},
		{"Passkeys", testPasskeys},
		{"PasskeyLinks", testLinks},
		{"WebhookNotices", testNotices},
		{"WebhookMessages", testMessages},
		{"MovedTickets", testMoved},
		{"Sagas", testSagas},
		{"SagaLease", testSagaLease},
		{"SagaClose", testSagaClose},
		{"SagaJoin", testSagaJoin},
		{"SagaPrune", testSagaPrune},
		{"SagaCovered", testSagaCovered},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, newPlace(t))
			tt.fn(t, f)
			f.verify(t)
		})
	}
}

// A fixture is a store with a clock that the test moves.
type fixture struct {
	Store
	place Place
	mu    sync.Mutex
	time  time.Time
	tick  time.Duration // added at each look
}

func newFixture(t *testing.T, p Place) *fixture {
	f := &fixture{place: p, time: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)}
	f.Store = f.another(t)
	return f
}

// another opens the same database once more.
func (f *fixture) another(t *testing.T) Store {
	t.Helper()
	s := f.place.Open(t, f.now)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func (f *fixture) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.time = f.time.Add(f.tick)
	return f.time
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.time = f.time.Add(d)
}

func (f *fixture) verify(t *testing.T) {
	t.Helper()
	heads := f.place.Heads(t)
	rep, err := audit.Verify(t.Context(), f.Store, audit.Options{PublicKeys: f.place.PublicKeys(), Head: heads})
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	for _, p := range rep.Problems {
		t.Errorf("verify: %v", p)
	}
	for _, l := range rep.Logs {
		if l.Entries > 0 && l.KeptHeads == 0 {
			t.Errorf("log %s: no head was kept", l.Writer)
		}
	}
}

// count returns how many entries of a kind the log has.
func (f *fixture) count(t *testing.T, kind sallyport.EntryKind) int {
	t.Helper()
	rows, err := audit.Search(t.Context(), f.Store, audit.Filter{Kind: kind}, audit.MaxSearch)
	must(t, err)
	return len(rows)
}

func (f *fixture) admin(t *testing.T) sallyport.Entry {
	t.Helper()
	e, err := audit.AdminEntry("t", sallyport.Change{Action: "test", By: "ada"})
	must(t, err)
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCode checks an error's code; "" wants none.
func wantCode(t *testing.T, what string, err error, want sallyport.Code) {
	t.Helper()
	if want == "" && err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if want != "" && (err == nil || sallyport.CodeOf(err) != want) {
		t.Errorf("%s: got %v, want code %s", what, err, want)
	}
}

func key(k string) sallyport.ReservationKey {
	return sallyport.ReservationKey{Tenant: "t", Principal: "agent", Tool: "pay__transfer", Key: k}
}

func fingerprint(args string) string {
	h := sha256.Sum256([]byte(args))
	return hex.EncodeToString(h[:])
}

func entry(kind sallyport.EntryKind, call string) sallyport.Entry {
	p, err := json.Marshal(sallyport.Record{CallID: call, Principal: "agent", Target: "pay__transfer"})
	if err != nil {
		panic(err)
	}
	return sallyport.Entry{Tenant: "t", Kind: kind, CallID: call, Payload: p}
}

const transfer = `{"amount":82000,"to":"A"}`

// a call of the tool with args under key k, and the ticket it would open.
func begin(k, args string) gateway.Begin {
	return gateway.Begin{Key: key(k), Fingerprint: fingerprint(args), CallID: "call-" + k, Lease: time.Minute,
		Intent: entry(sallyport.EntryIntent, "call-"+k), Unchanged: func() error { return nil }}
}

func finish(k string, fence int64, state sallyport.ReservationState) gateway.Finish {
	return gateway.Finish{Key: key(k), Fence: fence, State: state, Output: json.RawMessage(`{"content":[]}`),
		Outcome: entry(sallyport.EntryOutcome, "call-"+k)}
}

func ticket(k, args string) sallyport.Ticket {
	b := sallyport.Binding{Tenant: "t", Principal: "agent", Profile: "p", Tool: "pay__transfer", ToolVersion: "1", ToolDigest: "d",
		Args: json.RawMessage(args), Endpoint: "https://pay.test/mcp", Credential: "pay-key", Tier: "gvisor", Egress: []string{"pay.test:443"}}
	return sallyport.Ticket{ID: "tk-" + k, CallID: "call-" + k, Key: k, Binding: b, Hash: b.Hash(),
		Risk:     sallyport.Risk{Level: sallyport.Critical, Irreversible: true, Reasons: []string{"moves money"}, Objects: []string{"A"}},
		Policies: []string{"money"}, Trace: "00-trace"}
}

func (f *fixture) open(t *testing.T, k, args string) sallyport.Ticket {
	t.Helper()
	tk, err := f.Open(t.Context(), ticket(k, args), key(k), fingerprint(args), entry(sallyport.EntryTicket, "call-"+k))
	must(t, err)
	return tk
}

func (f *fixture) decide(t *testing.T, id string, approve bool) sallyport.Ticket {
	t.Helper()
	tk, err := f.Decide(t.Context(), "t", sallyport.Decision{Ticket: id, Approve: approve, By: "ada", Reason: "because"}, 10*time.Minute)
	must(t, err)
	return tk
}

// run begins with a ticket.
func (f *fixture) run(t *testing.T, tk sallyport.Ticket, args string) (int64, error) {
	t.Helper()
	b := begin(tk.Key, args)
	b.Ticket, b.TicketHash = tk.ID, ticket(tk.Key, args).Hash
	return f.Begin(t.Context(), b)
}

func (f *fixture) state(t *testing.T, k string) sallyport.ReservationState {
	t.Helper()
	r, err := f.Find(t.Context(), key(k))
	must(t, err)
	if r == nil {
		return ""
	}
	return r.State
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want)
	if g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}
