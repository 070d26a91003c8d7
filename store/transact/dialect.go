package transact

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// A Dialect is what a kind of database does in its own way. All fields must be
// set, except those that say otherwise.
type Dialect struct {
	// Migrate brings the schema up to date; two processes that start together do
	// it once.
	Migrate func(ctx context.Context, conn *sql.Conn) error

	// CheckVersion reports why the schema is not the one this program knows.
	CheckVersion func(ctx context.Context, db Querier) error

	// Begin are the statements that open a writing transaction. They wait for those
	// of other processes.
	Begin []string

	// BeginOwn is the same for a transaction that touches nothing but this
	// process's own audit log; it need not wait. It may be nil.
	BeginOwn []string

	// Lock is put behind a SELECT to lock the row that it reads; empty where Begin
	// locks everything.
	Lock string

	// Notify is a statement that tells every Listen of a ticket that has moved, at
	// the commit; it may be empty.
	Notify string

	// Listen calls moved whenever a ticket may have moved, and wherever it may have
	// missed that, until ctx ends or it fails. It may be nil.
	Listen func(ctx context.Context, moved func()) error

	// Patience bounds a transaction and a query; 0 where nothing but the database's
	// own timeouts is needed.
	Patience time.Duration

	// Shared says that several gateways may be at work, each alive as long as its
	// row of the writers' table says. Otherwise a gateway has the database alone.
	Shared bool

	// Now is a query for the database's own clock, in nanoseconds since 1970; empty
	// where that is the gateway's.
	Now string

	// Prepares says that the driver keeps statements prepared by itself.
	Prepares bool

	// Numbered says that arguments are written $1, $2 and so on, not `?`.
	Numbered bool

	// Member is an expression for a member of the JSON object in a text column,
	// NULL where the text is not JSON.
	Member func(column, name string) string

	// Contains is a condition: the text column contains the argument `?`.
	Contains func(column string) string

	// Explain completes e, which says that err happened, where it knows more.
	Explain func(err error, e *sallyport.Error)

	// Lost reports that the connection is of no use any more, Again that the same
	// transaction may succeed at the next try, Refused that the database itself
	// did not like a statement, and nothing was committed. They may be nil.
	Lost, Again, Refused func(error) bool

	// Pipeline sends statements, all of writing transactions, in one round trip.
	// For each that reads it returns the first row, nil if there is none. It may be
	// nil.
	Pipeline func(ctx context.Context, conn *sql.Conn, all []Statement) ([][]driver.Value, error)

	// Compact removes what the database keeps of erased rows; it may be nil.
	Compact func(ctx context.Context, conn *sql.Conn) error
}

// A Querier is what *sql.DB, *sql.Conn and *sql.Tx share.
type Querier interface {
	QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row
}

func (d Dialect) lost(err error) bool { return d.Lost != nil && d.Lost(err) }

func (d Dialect) again(err error) bool { return d.Again != nil && d.Again(err) }

// refused leaves out what is better tried again, or over a new connection.
func (d Dialect) refused(err error) bool {
	return d.Refused != nil && d.Refused(err) && !d.lost(err) && !d.again(err)
}

// bind writes the arguments of q as the database wants them. No `?` in our SQL
// stands for anything but an argument.
func (d Dialect) bind(q string) string {
	if !d.Numbered {
		return q
	}
	var b strings.Builder
	for i := 1; ; i++ {
		before, after, more := strings.Cut(q, "?")
		b.WriteString(before)
		if !more {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(i))
		q = after
	}
}
