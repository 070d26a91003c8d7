package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sallyport.dev/sallyport"
)

// state is the server's code of an error, "" if it does not come from a server.
func state(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// lost reports that a connection is of no use any more: it broke, or leads to a
// server that may not write.
func lost(err error) bool {
	switch code := state(err); {
	case code == "":
		return broken(err)
	case strings.HasPrefix(code, "08"), // connection exception
		strings.HasPrefix(code, "57P"),   // shut down, crashed, starting
		code == "25006",                  // read-only: it is no longer the primary
		code == "25P03", code == "53300", // idle in a transaction, too many connections
		strings.HasPrefix(code, "28"), code == "3D000": // the user or the database is gone
		return true
	}
	return false
}

func broken(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, e := range []error{driver.ErrBadConn, pgconn.ErrConnClosed, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, sql.ErrConnDone, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// again reports that the same transaction may succeed at once: it met another,
// or an old connection broke that a new one may replace.
func again(err error) bool {
	switch state(err) {
	case "40001", "40P01": // serialization failure, deadlock
		return true
	case "23505": // the log's next place was taken: by another process with this gateway's key
		e, _ := errors.AsType[*pgconn.PgError](err)
		return strings.HasPrefix(e.TableName, "audit_")
	case "57P01", "57P02", "25006", "25P03":
		return true
	case "":
		_, connecting := errors.AsType[*pgconn.ConnectError](err)
		return !connecting && !errors.Is(err, context.DeadlineExceeded) && broken(err)
	}
	return false
}

// explain completes an error that agents may see: nothing of the server is in it.
func explain(err error, e *sallyport.Error) {
	code := state(err)
	switch {
	case lost(err):
		e.Message, e.Hint = "the gateway's database does not answer", "try again; the gateway goes on by itself when the database is back"
		e.RetryAfter = time.Second
	case code == "40001", code == "40P01", code == "55P03", code == "57014":
		e.Message, e.Hint, e.RetryAfter = "the gateway's state is busy", "try again", time.Second
	case strings.HasPrefix(code, "53"):
		e.Message, e.Hint = "the gateway's database is out of disk, memory or connections", "the operator must make room"
	case code == "22021", code == "22P05":
		e.Code, e.Message, e.Hint = sallyport.Invalid, "a text holds a NUL character, which cannot be stored", "take it out"
	case code == "42501":
		e.Message, e.Hint = "the gateway's database user may not do this", "the operator must grant it the rights on Sallyport's tables"
	}
}

// explainOpen says which server could not be used, why, and what to do.
func (c *target) explainOpen(err error) error {
	if err == nil || isOurs(err) {
		return err
	}
	e := &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Receive, Err: err,
		Message: fmt.Sprintf("the database %s cannot be used: %s", c.name, c.plain(err))}
	switch code := state(err); {
	case strings.HasPrefix(code, "28"):
		e.Hint = "check the user and the password: in the URL, in the file of ?passfile= or PGPASSFILE (mode 0600), or in PGPASSWORD"
	case code == "3D000":
		e.Hint = "make it: createdb " + c.config.Database
	case code == "42501":
		e.Hint = "the user needs CREATE on the schema for the first start and for upgrades, later only to read and write the tables"
	case strings.Contains(err.Error(), "tls") || strings.Contains(err.Error(), "x509") || strings.Contains(err.Error(), "certificate"):
		e.Hint = "give the server a certificate, or its authority with ?sslrootcert=FILE; ?sslmode=disable sends everything in clear text"
	default:
		e.Hint = "start the server, or correct --store of init, or `store:` in sallyport.yaml"
	}
	return e
}

// plain is an error without the driver's preamble, and without the password.
func (c *target) plain(err error) string {
	s := err.Error()
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		s = e.Message
	} else if e, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		if inner := e.Unwrap(); inner != nil {
			s = inner.Error()
		}
	}
	if p := c.config.Password; p != "" {
		s = strings.ReplaceAll(s, p, "…")
	}
	return strings.Join(strings.Fields(s), " ")
}
