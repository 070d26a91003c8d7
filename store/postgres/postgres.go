// Package postgres opens the gateway's state in a PostgreSQL database, for
// several gateways that are equals.
//
// A transaction takes one advisory lock of the database before it reads, as it
// takes the file's lock in SQLite: what the shared code of store/relational
// reads stays true until it commits, whichever gateway it runs in. The flushes
// of a gateway's own audit log touch nothing of others and do not wait for it.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/transact"
)

// Open opens the database that url names and brings its schema up to date. Every
// change that the store makes is sealed by seal; a log that was altered at rest
// is refused. Errors that concern the server are Unavailable and say where it
// is, never the password.
func Open(ctx context.Context, url string, seal *audit.Sealer, opts ...relational.Option) (*relational.Store, error) {
	c, err := parse(url)
	if err != nil {
		return nil, err
	}
	pools := transact.Pools{Write: c.pool(1, false), Read: c.pool(readers, true)}
	s, err := relational.Open(ctx, c.dialect(), pools, seal, opts...)
	return s, c.explainOpen(err)
}

// OpenReadOnly opens the database for lists, audit verification, search and
// export.
func OpenReadOnly(ctx context.Context, url string, opts ...relational.Option) (*relational.Store, error) {
	c, err := parse(url)
	if err != nil {
		return nil, err
	}
	s, err := relational.OpenReadOnly(ctx, c.dialect(), transact.Pools{Read: c.pool(readers, true)}, opts...)
	return s, c.explainOpen(err)
}

const (
	readers  = 8                // reading connections of a gateway
	patience = 15 * time.Second // for a transaction or a query
)

// settings of every session. A gateway that stalls in mid-transaction must not
// keep the lock: the server ends its session, and nothing is committed.
var settings = map[string]string{
	"application_name":                    "sallyport",
	"idle_in_transaction_session_timeout": "10s",
	"lock_timeout":                        "12s",
	"statement_timeout":                   "30s",
	"client_encoding":                     "UTF8",
	"standard_conforming_strings":         "on",
	"default_transaction_isolation":       "read committed",
	"synchronous_commit":                  "on", // a commit is on disk, whatever the server's default
}

func (c *target) pool(conns int, readOnly bool) *sql.DB {
	config := c.config.Copy()
	for k, v := range settings {
		config.RuntimeParams[k] = v
	}
	if readOnly {
		config.RuntimeParams["default_transaction_read_only"] = "on"
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db
}

// The statements that open a transaction. The lock belongs to the schema, so
// that gateways of several databases or schemas do not meet.
const (
	begin   = "BEGIN"
	lock    = "SELECT pg_advisory_xact_lock(hashtextextended('sallyport/' || current_schema(), 0))"
	channel = "sallyport_tickets"
)

func (c *target) dialect() transact.Dialect {
	return transact.Dialect{
		Begin:        []string{begin, lock},
		BeginOwn:     []string{begin},
		Lock:         " FOR UPDATE",
		Notify:       "NOTIFY " + channel,
		Listen:       c.listen,
		Numbered:     true,
		Prepares:     true,
		Shared:       true,
		Now:          "SELECT (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint",
		Patience:     patience,
		Migrate:      migrate,
		CheckVersion: checkVersion,
		Member:       func(column, name string) string { return "sallyport_member(" + column + ", '" + name + "')" },
		Contains:     func(column string) string { return "strpos(" + column + ", ?) > 0" },
		Explain:      explain,
		Pipeline:     pipeline,
		Lost:         lost,
		Again:        again,
		Refused:      func(err error) bool { return state(err) != "" },
	}
}

// listen waits for tickets that move, over a connection of its own.
func (c *target) listen(ctx context.Context, moved func()) error {
	config := c.config.Copy()
	config.RuntimeParams["application_name"] = "sallyport listener"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return c.explainOpen(err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	for {
		moved() // also what moved before the connection stood
		// A silent connection is looked at now and then: it may be dead.
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		_, err := conn.WaitForNotification(wait)
		expired := wait.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && expired && !conn.IsClosed():
			err = conn.Ping(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// errForeign says that the database has tables, and not ours.
var errForeign = &sallyport.Error{Code: sallyport.Invalid,
	Message: "the database has tables of another program",
	Hint:    "give Sallyport an empty database, or a schema of its own: add ?search_path=NAME to the URL and CREATE SCHEMA NAME"}

func isOurs(err error) bool {
	_, ours := errors.AsType[*sallyport.Error](err)
	return ours
}
