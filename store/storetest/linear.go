package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// Many clients of two processes do random things to a few keys at once. What
// they saw must be what one after another could have seen: porcupine looks for
// such an order, by the model in model.go. SALLYPORT_SEED repeats one seed's
// operations (not the machine's schedule); SALLYPORT_SOAK takes many.

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
