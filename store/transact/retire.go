package transact

import (
	"context"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
)

// RetireLog writes down where the log of a gateway ended that is gone for good,
// so that the record can be verified without its key. It returns what it wrote.
// Codes: NotFound, Conflict for a gateway that lives, for this one and for one
// that is retired already.
func (db *DB) RetireLog(ctx context.Context, tenant, writer, by, reason string) (audit.Retirement, error) {
	var r audit.Retirement
	fail := func(code sallyport.Code, hint, format string, args ...any) error {
		return &sallyport.Error{Code: code, Step: sallyport.Respond, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	logs, err := db.Logs(ctx)
	if err != nil {
		return r, err
	}
	err = db.Update(ctx, sallyport.Respond, func(t *Tx) error {
		found := audit.State{}
		for _, st := range logs {
			if st.Writer == writer {
				found = st
			}
		}
		now := time.Now().UnixNano()
		if db.dialect.Now != "" {
			if err := t.Row(db.dialect.Now).Scan(&now); err != nil {
				return err
			}
		}
		var alive, before int
		if err := t.Row("SELECT count(*) FROM writers WHERE log = ? AND alive_until > ?", writer, now).Scan(&alive); err != nil {
			return err
		}
		if err := t.Row(`SELECT count(*) FROM audit_entries e JOIN audit_payloads p USING (log, seq) WHERE e.kind = 'admin' AND p.payload LIKE ? AND p.payload LIKE ?`,
			`%"action":"`+audit.RetireAction+`"%`, `%"writer":"`+writer+`"%`).Scan(&before); err != nil {
			return err
		}
		switch {
		case found.Writer == "":
			return fail(sallyport.NotFound, "`sallyport audit verify` names the logs", "there is no log %.64q", writer)
		case writer == db.LogWriter():
			return fail(sallyport.Conflict, "ask another gateway of the same database", "a gateway does not retire its own log")
		case alive > 0:
			return fail(sallyport.Conflict, "stop it first", "the gateway that writes log %s lives", writer)
		case before > 0:
			return fail(sallyport.Conflict, "", "log %s is retired already", writer)
		}
		if r, err = audit.RetirementOf(found); err != nil {
			return fail(sallyport.Conflict, "`sallyport audit verify` says what is wrong", "the log cannot be retired: %v", err)
		}
		e, err := audit.AdminEntry(tenant, sallyport.Change{Action: audit.RetireAction, By: by, Target: writer, Reason: reason, Detail: r})
		t.Log(e)
		return err
	})
	return r, err
}
