package storetest

import (
	"fmt"
	"maps"

	"github.com/anishathalye/porcupine"

	"sallyport.dev/sallyport"
)

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
