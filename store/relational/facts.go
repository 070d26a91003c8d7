package relational

import (
	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store/transact"
)

// What updates read first, and may know before they run; see transact.Fact. Each
// has a name by which whoever changes it says so.

// A call's reservation is named by its key.
func reservationFact(key sallyport.ReservationKey) transact.Fact {
	return transact.Fact{Name: key, SQL: selectReservation, Args: []any{key.Tenant, key.Principal, key.Tool, key.Key}}
}

type ticketName struct{ tenant, id string }

func ticketFact(tenant, id string) transact.Fact {
	return transact.Fact{Name: ticketName{tenant, id}, SQL: "SELECT " + ticketColumns + " WHERE tenant = ? AND id = ?", Args: []any{tenant, id}}
}

// openName names how many calls of a principal are open.
type openName struct{ tenant, principal string }

func openOf(key sallyport.ReservationKey) openName { return openName{key.Tenant, key.Principal} }

func (s *Store) openFact(key sallyport.ReservationKey) transact.Fact {
	return transact.Fact{Name: openOf(key), SQL: selectOpen, Args: []any{key.Tenant, key.Principal, s.maxOpen, key.Tenant, key.Principal, s.maxOpen}}
}

// A call that waits for a human is counted by its ticket, so that many of them are
// many entries of one index.
const selectOpen = `SELECT
	(SELECT count(*) FROM (SELECT 1 FROM reservations WHERE tenant = ? AND principal = ? AND state IN ('reserved', 'executing', 'unknown') LIMIT ?) AS r) +
	(SELECT count(*) FROM (SELECT 1 FROM tickets WHERE tenant = ? AND principal = ? AND state IN ('pending', 'approved') LIMIT ?) AS t)`

// keptName names the bytes of outputs kept for a principal.
type keptName struct{ tenant, principal string }

func keptFact(tenant, principal string) transact.Fact {
	return transact.Fact{Name: keptName{tenant, principal}, SQL: "SELECT bytes FROM kept_outputs WHERE tenant = ? AND principal = ?", Args: []any{tenant, principal}}
}
