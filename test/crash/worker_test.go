package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/sqlite"
)

// The process that is killed: it asks, decides, begins, acts and finishes, with
// several calls at once.

const lanes = 4

type worker struct {
	s     *sqlite.Store
	drain bool
}

func openStore(dir string) (*sqlite.Store, *audit.Key, error) {
	key, err := audit.LoadKey(dir)
	if err != nil {
		return nil, nil, err
	}
	seal, err := audit.NewSealer(key, filepath.Join(dir, "heads"))
	if err != nil {
		return nil, nil, err
	}
	s, err := sqlite.Open(filepath.Join(dir, "db"), seal)
	return s, key, err
}

// work starts where an earlier process was killed. With drain it only settles
// what was left, and ends.
func work(dir string, drain bool) error {
	s, _, err := openStore(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx := context.Background()
	if _, err := s.Recover(ctx, s.Writer()); err != nil {
		return err
	}
	left, err := s.Reservations(ctx, store.ReservationFilter{Tenant: "t"})
	if err != nil {
		return err
	}
	w := &worker{s: s, drain: drain}
	errs := make([]error, lanes)
	var wg sync.WaitGroup
	fmt.Println("ready")
	for lane := range lanes {
		wg.Go(func() { errs[lane] = w.lane(ctx, dir, lane, left) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (w *worker) lane(ctx context.Context, dir string, lane int, left []sallyport.Reservation) error {
	wit, err := newWitness(dir)
	if err != nil {
		return err
	}
	next := lane
	for _, r := range left {
		i, err := strconv.Atoi(strings.TrimPrefix(r.Key, "k"))
		if err != nil {
			return err
		}
		if i%lanes != lane {
			continue
		}
		next = max(next, i+lanes)
		if r.State == sallyport.AwaitingApproval || r.State == sallyport.Unknown {
			if err := w.call(ctx, wit, i); err != nil { // for an unknown one this is the forbidden retry
				return err
			}
		}
	}
	for ; !w.drain; next += lanes {
		if err := w.call(ctx, wit, next); err != nil {
			return err
		}
	}
	return nil
}

func entry(kind sallyport.EntryKind, key string) sallyport.Entry {
	return sallyport.Entry{Tenant: "t", Kind: kind, CallID: key, Payload: json.RawMessage(`{"call_id":"` + key + `"}`)}
}

func keyOf(k string) sallyport.ReservationKey {
	return sallyport.ReservationKey{Tenant: "t", Principal: "agent", Tool: "pay", Key: k}
}

// call takes one call as far as it goes. Every third needs no approval; of the
// tickets every fifth is rejected.
func (w *worker) call(ctx context.Context, wit *witness, i int) error {
	k := fmt.Sprint("k", i)
	b := gateway.Begin{Key: keyOf(k), Fingerprint: "f", CallID: k, Lease: time.Hour, Intent: entry(sallyport.EntryIntent, k)}
	if i%3 != 0 {
		tk, err := w.ask(ctx, k)
		if err != nil {
			return ignore(err, sallyport.OutcomeUnknown)
		}
		if tk.State == sallyport.TicketPending {
			approve := i%5 != 0
			if tk, err = w.s.Decide(ctx, "t", sallyport.Decision{Ticket: tk.ID, Approve: approve, By: "ada", Reason: k}, time.Hour); err != nil {
				return err
			}
			if err := wit.tell("decided", tk.ID, approve); err != nil {
				return err
			}
		}
		if tk.State == sallyport.TicketRejected {
			return nil
		}
		b.Ticket, b.TicketHash = tk.ID, tk.Hash
	}
	fence, err := w.s.Begin(ctx, b)
	if err != nil {
		return ignore(err, sallyport.OutcomeUnknown)
	}
	if err := wit.tell("effect", k); err != nil {
		return err
	}
	if err := w.s.Finish(ctx, gateway.Finish{Key: b.Key, Fence: fence, State: sallyport.Done, Output: json.RawMessage(`{}`),
		Outcome: entry(sallyport.EntryOutcome, k)}); err != nil {
		return err
	}
	return wit.tell("finished", k)
}

func (w *worker) ask(ctx context.Context, k string) (sallyport.Ticket, error) {
	bd := sallyport.Binding{Tenant: "t", Principal: "agent", Tool: "pay", Args: json.RawMessage(`{"k":"` + k + `"}`)}
	return w.s.Open(ctx, sallyport.Ticket{CallID: k, Key: k, Binding: bd, Hash: bd.Hash(), DecideBy: time.Now().Add(time.Hour)},
		keyOf(k), "f", entry(sallyport.EntryTicket, k))
}

func ignore(err error, code sallyport.Code) error {
	if sallyport.CodeOf(err) == code {
		return nil
	}
	return err
}

// role makes this test binary one of the processes.
func role() (ran bool) {
	dir := os.Getenv("SALLYPORT_CRASH_DIR")
	var err error
	switch os.Getenv("SALLYPORT_CRASH_ROLE") {
	case "ledger":
		err = keepLedger(dir)
	case "worker":
		err = work(dir, false)
	case "drain":
		err = work(dir, true)
	case "target":
		err = playTarget(dir)
	default:
		return false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	return true
}
