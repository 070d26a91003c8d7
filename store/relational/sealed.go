package relational

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// What callers and tools said is not legible at rest: arguments of tickets,
// with what was found out about them, outputs kept for replay and reasons lie in the
// database under a store.Box. Rows from before there was one are read as they
// are; JSON does not begin with the byte that a sealed row begins with.

// WithBox seals rows with b. Without it they are kept as they are, and sealed
// ones cannot be read.
func WithBox(b store.Box) Option { return func(s *Store) { s.box = b } }

// inside is what a ticket's sealed row holds besides the arguments.
type inside struct {
	Risk    sallyport.Risk          `json:"risk"`
	Witness []sallyport.Observation `json:"witness,omitempty"`
}

func ticketRow(id string) string { return "ticket\x00" + id }

// sealTicket returns the ticket as it is stored.
func (s *Store) sealTicket(tk sallyport.Ticket) (sallyport.Ticket, error) {
	if s.box == nil {
		return tk, nil
	}
	in, err := json.Marshal(inside{tk.Risk, tk.Binding.Witness})
	if err != nil {
		return tk, err
	}
	plain := binary.AppendUvarint(nil, uint64(len(tk.Binding.Args)))
	plain = append(append(plain, tk.Binding.Args...), in...)
	tk.Binding.Args = s.box.Seal(tk.Binding.Tenant, ticketRow(tk.ID), plain)
	tk.Risk, tk.Binding.Witness = sallyport.Risk{}, nil
	return tk, nil
}

// openTicket makes a stored ticket legible.
func (s *Store) openTicket(tk *sallyport.Ticket) error {
	plain, sealed, err := s.unseal(tk.Binding.Tenant, ticketRow(tk.ID), tk.Binding.Args)
	if err != nil || !sealed {
		return err
	}
	n, head := binary.Uvarint(plain)
	if head <= 0 || n > uint64(len(plain)-head) {
		return fmt.Errorf("ticket %s is malformed", tk.ID)
	}
	args, in := plain[head:head+int(n)], inside{}
	if err := json.Unmarshal(plain[head+int(n):], &in); err != nil {
		return fmt.Errorf("ticket %s is malformed: %w", tk.ID, err)
	}
	tk.Binding.Args, tk.Risk, tk.Binding.Witness = args, in.Risk, in.Witness
	return nil
}

func (s *Store) openTickets(all []sallyport.Ticket) error {
	var errs []error
	for i := range all {
		errs = append(errs, s.openTicket(&all[i]))
	}
	return errors.Join(errs...)
}

// What of a reservation is sealed.
const (
	outputRow = "output"
	reasonRow = "reason" // of a failure
)

func reservationRow(what string, k sallyport.ReservationKey) string {
	return strings.Join([]string{what, k.Principal, k.Tool, k.Key}, "\x00")
}

// seal returns a part of a reservation as it is stored.
func (s *Store) seal(what string, k sallyport.ReservationKey, plain json.RawMessage) json.RawMessage {
	if s.box == nil || plain == nil {
		return plain
	}
	return s.box.Seal(k.Tenant, reservationRow(what, k), plain)
}

// openReservation makes a stored reservation legible.
func (s *Store) openReservation(r *sallyport.Reservation) error {
	for what, part := range map[string]*json.RawMessage{outputRow: &r.Output, reasonRow: &r.Reason} {
		plain, sealed, err := s.unseal(r.Tenant, reservationRow(what, r.ReservationKey), *part)
		if err != nil {
			return err
		}
		if sealed {
			*part = plain
		}
	}
	return nil
}

func (s *Store) unseal(tenant, row string, stored []byte) (plain []byte, sealed bool, err error) {
	if len(stored) == 0 || stored[0] != store.SealedRow {
		return nil, false, nil
	}
	if s.box == nil {
		return nil, true, &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Reserve,
			Message: "what callers and tools said is sealed in this database, and there is no key to read it",
			Hint:    "keys/secrets.key of the data folder is needed: restore it from a backup"}
	}
	plain, err = s.box.Open(tenant, row, stored)
	return plain, true, err
}
