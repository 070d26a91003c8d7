package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
)

// Many clients of two processes do random things to a few keys at once. What
// they saw must be what one after another could have seen: porcupine looks for
// such an order, by the model below. SALLYPORT_SEED repeats one seed's
// operations (not the machine's schedule); SALLYPORT_SOAK takes many.

// An act is what one client asks for.
type act struct {
	what        string // find, open, decide, begin, finish, resolve
	key         string
	fingerprint string
	ticket      string // to open, to decide, or to begin with
	approve     bool
	crash       bool   // begin, and be gone at once
	call        string // to begin, or that a word to resolve is about
	fence       int64
	state       sallyport.ReservationState // finish and resolve
	output      string
	process     int
}

// A sight is what it gets.
type sight struct {
	code   sallyport.Code // "" = ok
	state  sallyport.ReservationState
	output string
	fence  int64
	ticket string
	moved  sallyport.TicketState
}

// A keyState is one key, as the model has it.
type keyState struct {
	state       sallyport.ReservationState // "" = nobody has used it
	fingerprint string
	fence       int64
	call        string // that was begun last
	owner       int
	output      string
	ticket      string
	tickets     map[string]sallyport.TicketState // never changed in place
}

func (k keyState) with(id string, s sallyport.TicketState) keyState {
	k.tickets = maps.Clone(k.tickets)
	if k.tickets == nil {
		k.tickets = map[string]sallyport.TicketState{}
	}
	k.tickets[id] = s
	return k
}

// taken is why a key cannot be opened or begun, or "".
func (k keyState) taken(fingerprint string) sallyport.Code {
	switch {
	case k.state == "":
		return ""
	case k.fingerprint != fingerprint:
		return sallyport.Conflict
	case k.state == sallyport.Executing || k.state == sallyport.Done:
		return sallyport.InFlight
	case k.state == sallyport.Unknown:
		return sallyport.OutcomeUnknown
	}
	return ""
}

// step is the model: what one key answers, and what becomes of it.
func (k keyState) step(a act) (sight, keyState) {
	refuse := func(code sallyport.Code) (sight, keyState) { return sight{code: code}, k }
	switch a.what {
	case "find":
		return sight{state: k.state, output: k.output, fence: k.fence}, k
	case "open":
		if code := k.taken(a.fingerprint); code != "" {
			return refuse(code)
		}
		if k.state != sallyport.AwaitingApproval {
			k = k.with(a.ticket, sallyport.TicketPending)
			k.state, k.fingerprint, k.ticket = sallyport.AwaitingApproval, a.fingerprint, a.ticket
		}
		return sight{ticket: k.ticket, moved: k.tickets[k.ticket]}, k
	case "decide":
		if k.tickets[a.ticket] != sallyport.TicketPending {
			return refuse(sallyport.Conflict)
		}
		if a.approve {
			return sight{}, k.with(a.ticket, sallyport.TicketApproved)
		}
		return sight{}, k.with(a.ticket, sallyport.TicketRejected)
	case "begin":
		return k.begin(a)
	case "finish":
		if k.state != sallyport.Executing || k.fence != a.fence || k.owner != a.process {
			return refuse(sallyport.Conflict)
		}
		k.state = a.state
		if a.state == sallyport.Done {
			k.output = a.output
		}
		return sight{}, k
	case "resolve":
		if k.state == "" {
			return refuse(sallyport.NotFound)
		}
		if k.state != sallyport.Unknown || a.call != k.call && (a.call != "" || k.fence > 1) {
			return refuse(sallyport.Conflict)
		}
		k.state, k.fence = a.state, k.fence+1
		if a.state == sallyport.Done {
			k.output = a.output
		}
		return sight{}, k
	}
	panic("no such act: " + a.what)
}

func (k keyState) begin(a act) (sight, keyState) {
	if code := k.taken(a.fingerprint); code != "" {
		return sight{code: code}, k
	}
	if a.ticket != "" {
		refused := map[sallyport.TicketState]sallyport.Code{sallyport.TicketPending: sallyport.Pending, sallyport.TicketConsumed: sallyport.Conflict,
			sallyport.TicketRejected: sallyport.Rejected, sallyport.TicketWithdrawn: sallyport.Rejected, sallyport.TicketVoid: sallyport.Rejected}
		if code := refused[k.tickets[a.ticket]]; code != "" {
			return sight{code: code}, k
		}
		k = k.with(a.ticket, sallyport.TicketConsumed)
	} else if k.state == sallyport.AwaitingApproval {
		open := map[sallyport.TicketState]sallyport.Code{sallyport.TicketPending: sallyport.Pending,
			sallyport.TicketApproved: sallyport.Conflict, sallyport.TicketRejected: sallyport.Rejected}
		if code := open[k.tickets[k.ticket]]; code != "" {
			return sight{code: code}, k
		}
	}
	k.state, k.fingerprint, k.ticket, k.fence, k.owner, k.call = sallyport.Executing, a.fingerprint, a.ticket, k.fence+1, a.process, a.call
	if a.crash {
		k.state = sallyport.Unknown
	}
	return sight{fence: k.fence}, k
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) (out [][]porcupine.Operation) {
		byKey := map[string][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(act).key
			byKey[k] = append(byKey[k], o)
		}
		for _, all := range byKey {
			out = append(out, all)
		}
		return out
	},
	Init: func() any { return keyState{} },
	Step: func(state, input, output any) (bool, any) {
		want, next := state.(keyState).step(input.(act))
		return want == output.(sight), next
	},
	Equal: func(a, b any) bool {
		x, y := a.(keyState), b.(keyState)
		same := maps.Equal(x.tickets, y.tickets)
		x.tickets, y.tickets = nil, nil
		return same && fmt.Sprint(x) == fmt.Sprint(y)
	},
	DescribeOperation: func(in, out any) string {
		a, s := in.(act), out.(sight)
		return fmt.Sprintf("%s %s %s ticket=%s approve=%v crash=%v fence=%d to=%s by=%d -> %q state=%s output=%s fence=%d %s %s",
			a.what, a.key, a.fingerprint, a.ticket, a.approve, a.crash, a.fence, a.state, a.process, s.code, s.state, s.output, s.fence, s.ticket, s.moved)
	},
}

// ownKey is of a principal for each seed, so that no bound on one is met.
func ownKey(a act) sallyport.ReservationKey {
	k := key(a.key)
	k.Principal, _, _ = strings.Cut(a.key, "-")
	return k
}

func ticketOf(a act) sallyport.Ticket {
	tk := ticket(a.key, a.fingerprint)
	tk.Binding.Principal = ownKey(a).Principal
	tk.Hash = tk.Binding.Hash()
	return tk
}

// do asks a store.
func do(ctx context.Context, s Store, a act) sight {
	code := func(err error) sallyport.Code {
		if err == nil {
			return ""
		}
		return sallyport.CodeOf(err)
	}
	k := ownKey(a)
	switch a.what {
	case "find":
		r, err := s.Find(ctx, k)
		if err != nil || r == nil {
			return sight{code: code(err)}
		}
		return sight{state: r.State, output: string(r.Output), fence: r.Fence}
	case "open":
		tk := ticketOf(a)
		tk.ID = a.ticket
		got, err := s.Open(ctx, tk, k, a.fingerprint, entry(sallyport.EntryTicket, "call-"+a.key))
		if err != nil {
			return sight{code: code(err)}
		}
		return sight{ticket: got.ID, moved: got.State}
	case "decide":
		_, err := s.Decide(ctx, "t", sallyport.Decision{Ticket: a.ticket, Approve: a.approve, By: "ada"}, time.Hour)
		return sight{code: code(err)}
	case "begin":
		b := begin(a.key, "")
		b.Key, b.Fingerprint, b.Lease, b.Ticket, b.CallID = k, a.fingerprint, time.Hour, a.ticket, a.call
		if a.crash {
			b.Lease = 1
		}
		if a.ticket != "" {
			b.TicketHash = ticketOf(a).Hash
		}
		fence, err := s.Begin(ctx, b)
		return sight{code: code(err), fence: fence}
	case "finish":
		f := finish(a.key, a.fence, a.state)
		f.Key, f.Output = k, json.RawMessage(a.output)
		return sight{code: code(s.Finish(ctx, f))}
	case "resolve":
		r := store.Resolution{Key: k, Call: a.call, State: a.state, By: "ada", Reason: "seen"}
		if a.state == sallyport.Done {
			r.Output = json.RawMessage(a.output)
		}
		return sight{code: code(s.Resolve(ctx, r))}
	}
	panic("no such act: " + a.what)
}

const (
	linearKeys    = 10
	linearClients = 6
	linearActs    = 60
)

// A known is what clients have told each other about one key.
type known struct {
	mu      sync.Mutex
	tickets []string
	fences  []act // begun calls
}

// next chooses what a client does.
func (w *known) next(r *rand.Rand, name, key string, process int) act {
	a := act{key: key, process: process, fingerprint: "f", output: fmt.Sprintf("{%q:1}", name), state: sallyport.Done}
	if r.IntN(12) == 0 {
		a.fingerprint = "g"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch n := r.IntN(20); {
	case n < 4:
		a.what = "find"
	case n < 7:
		a.what, a.ticket = "open", "tk-"+name
	case n < 11 && len(w.tickets) > 0:
		a.what, a.ticket, a.approve = "decide", w.tickets[r.IntN(len(w.tickets))], r.IntN(3) > 0
	case n < 15 && (len(w.tickets) > 0 || r.IntN(3) == 0) || len(w.fences) == 0 && r.IntN(2) == 0:
		a.what, a.crash, a.call = "begin", r.IntN(6) == 0, "call-"+name
		if len(w.tickets) > 0 && r.IntN(3) > 0 {
			a.ticket = w.tickets[max(r.IntN(len(w.tickets)), r.IntN(len(w.tickets)))]
		}
	case n < 19 && len(w.fences) > 0:
		last := w.fences[max(r.IntN(len(w.fences)), r.IntN(len(w.fences)))]
		a.what, a.fence, a.process = "finish", last.fence, last.process
		a.state = []sallyport.ReservationState{sallyport.Done, sallyport.Failed, sallyport.Failed, sallyport.Failed, sallyport.Unknown}[r.IntN(5)]
	default:
		a.what = "resolve"
		if len(w.fences) > 0 && r.IntN(4) > 0 {
			a.call = w.fences[max(r.IntN(len(w.fences)), r.IntN(len(w.fences)))].call
		}
		if r.IntN(4) > 0 {
			a.state = sallyport.Failed
		}
	}
	return a
}

func (w *known) saw(a act, s sight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.ticket != "" {
		w.tickets = append(w.tickets, s.ticket)
	}
	if a.what == "begin" && s.code == "" {
		w.fences = append(w.fences, act{fence: s.fence, process: a.process, call: a.call})
	}
}

// history lets the clients loose on two processes' stores, each as alter makes
// it, on keys of their own.
func history(t *testing.T, seed uint64, stores [2]Store) []porcupine.Operation {
	t.Helper()
	var mu sync.Mutex
	var all []porcupine.Operation
	var wg sync.WaitGroup
	shared := map[string]*known{}
	for i := range linearKeys {
		shared[fmt.Sprintf("s%d-%d", seed, i)] = &known{}
	}
	start := time.Now()
	for client := range linearClients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(client)))
			for i := range linearActs {
				k := fmt.Sprintf("s%d-%d", seed, min(i*linearKeys/linearActs+r.IntN(2), linearKeys-1)) // from key to key, together
				a := shared[k].next(r, fmt.Sprintf("%d-%d-%d", seed, client, i), k, client%2)
				o := porcupine.Operation{ClientId: client, Input: a, Call: int64(time.Since(start))}
				got := do(t.Context(), stores[a.process], a)
				o.Output, o.Return = got, int64(time.Since(start))
				shared[k].saw(a, got)
				mu.Lock()
				all = append(all, o)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all
}

// seeds are those of this run.
func seeds(t *testing.T, few, many int) []uint64 {
	t.Helper()
	if one, err := strconv.ParseUint(os.Getenv("SALLYPORT_SEED"), 10, 64); err == nil {
		return []uint64{one}
	}
	n := few
	if os.Getenv("SALLYPORT_SOAK") != "" {
		n = many
	}
	first := uint64(time.Now().UnixNano() % 1_000_000_000)
	out := make([]uint64, n)
	for i := range out {
		out[i] = first + uint64(i)
	}
	return out
}

// ticking makes the fixture's clock move with each look, so that a lease of a
// nanosecond is over at once.
func (f *fixture) ticking() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tick = time.Nanosecond
}

// What concurrent clients see of reservations is linearizable.
func testLinear(t *testing.T, f *fixture) {
	f.ticking()
	other := f.another(t)
	codes := map[string]int{}
	for _, seed := range seeds(t, 3, 300) {
		h := history(t, seed, [2]Store{f.Store, other})
		for _, o := range h {
			codes[o.Input.(act).what+" "+string(o.Output.(sight).code)]++
		}
		for _, one := range model.Partition(h) {
			switch porcupine.CheckOperationsTimeout(model, one, time.Minute) {
			case porcupine.Illegal:
				for _, o := range one {
					t.Logf("%d %8d-%8d %s", o.ClientId, o.Call/1000, o.Return/1000, model.DescribeOperation(o.Input, o.Output))
				}
				t.Fatalf("seed %d: no order explains what the clients saw (repeat it with SALLYPORT_SEED=%d)", seed, seed)
			case porcupine.Unknown:
				t.Logf("seed %d: a key was not decided within a minute", seed)
			default:
			}
		}
		t.Logf("seed %d: %d operations", seed, len(h))
	}
	for _, what := range []string{"find ", "open ", "decide ", "begin ", "finish ", "resolve ", "begin in_flight", "begin conflict", "begin outcome_unknown", "finish conflict"} {
		if codes[what] == 0 && os.Getenv("SALLYPORT_SEED") == "" {
			t.Errorf("%q never happened, so this shows little: %v", what, codes)
		}
	}
}

// A mutant is a store that is broken in one way.
type mutant struct {
	Store
	begin  func(int64, error) (int64, error)
	finish func(error) error
	decide func(error) error
	find   func(*sallyport.Reservation) *sallyport.Reservation
}

func (m mutant) Begin(ctx context.Context, b gateway.Begin) (int64, error) {
	fence, err := m.Store.Begin(ctx, b)
	if m.begin != nil {
		return m.begin(fence, err)
	}
	return fence, err
}

func (m mutant) Finish(ctx context.Context, f gateway.Finish) error {
	err := m.Store.Finish(ctx, f)
	if m.finish != nil {
		return m.finish(err)
	}
	return err
}

func (m mutant) Decide(ctx context.Context, tenant string, d sallyport.Decision, run time.Duration) (sallyport.Ticket, error) {
	tk, err := m.Store.Decide(ctx, tenant, d, run)
	if m.decide != nil {
		return tk, m.decide(err)
	}
	return tk, err
}

func (m mutant) Find(ctx context.Context, k sallyport.ReservationKey) (*sallyport.Reservation, error) {
	r, err := m.Store.Find(ctx, k)
	if m.find != nil && err == nil {
		r = m.find(r)
	}
	return r, err
}

func forgive(code sallyport.Code) func(error) error {
	return func(err error) error {
		if err != nil && sallyport.CodeOf(err) == code {
			return nil
		}
		return err
	}
}

func takes(code sallyport.Code) func(int64, error) (int64, error) {
	return func(fence int64, err error) (int64, error) {
		if err != nil && sallyport.CodeOf(err) == code {
			return 1, nil
		}
		return fence, err
	}
}

// The control: the model notices a ledger that is broken.
func testLinearMutants(t *testing.T, f *fixture) {
	f.ticking()
	other := f.another(t)
	seed := seeds(t, 1, 1)[0] + 1_000_000_000
	for name, m := range map[string]mutant{
		"a key is begun while it runs":             {begin: takes(sallyport.InFlight)},
		"an unknown outcome is retried":            {begin: takes(sallyport.OutcomeUnknown)},
		"a ticket, or other arguments, are reused": {begin: takes(sallyport.Conflict)},
		"a fence does not grow": {begin: func(fence int64, err error) (int64, error) {
			return min(fence, 1), err
		}},
		"an owner of old is believed": {finish: forgive(sallyport.Conflict)},
		"a ticket is decided twice":   {decide: forgive(sallyport.Conflict)},
		"an unknown outcome looks failed": {find: func(r *sallyport.Reservation) *sallyport.Reservation {
			if r != nil && r.State == sallyport.Unknown {
				r.State = sallyport.Failed
			}
			return r
		}},
		"a result is lost": {find: func(r *sallyport.Reservation) *sallyport.Reservation {
			if r != nil {
				r.Output = nil
			}
			return r
		}},
	} {
		caught := false
		for try := 0; try < 20 && !caught; try++ {
			seed++
			one, two := m, m
			one.Store, two.Store = f.Store, other
			caught = porcupine.CheckOperationsTimeout(model, history(t, seed, [2]Store{one, two}), time.Minute) == porcupine.Illegal
		}
		if !caught {
			t.Errorf("%s, and the model does not notice", name)
		}
	}
}
