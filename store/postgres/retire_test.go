package postgres_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store/relational"
)

// The log of a gateway that is gone with its key is retired by another one. From
// then on the record verifies without that key, and missing, altered and later
// entries are still noticed.
func TestRetiredLog(t *testing.T) {
	server := running(t)
	kept := newPlace(t, server)
	lost := joinPlace(t, kept.url)
	a, b := kept.start(t, time.Hour), lost.start(t, time.Hour)
	write := func(s *relational.Store, n int) {
		t.Helper()
		for range n {
			if err := s.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Kind: sallyport.EntryOutcome, Payload: json.RawMessage(`{}`)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(a, 2)
	write(b, 3)
	log := b.LogWriter()
	server.SQL(t, kept.url, "CREATE TABLE saved_old AS SELECT * FROM audit_logs WHERE writer = '"+log+"'")
	write(b, 2)
	verify := func() (notes, problems string) {
		t.Helper()
		rep := must[audit.Report](t)(audit.Verify(t.Context(), a, audit.Options{PublicKeys: kept.PublicKeys(), Head: kept.Heads(t)}))
		for _, p := range rep.Problems {
			problems += p.String() + "\n"
		}
		return strings.Join(rep.Notes, "\n"), problems
	}
	refused := func(what, log string, code sallyport.Code) {
		t.Helper()
		if _, err := a.RetireLog(t.Context(), "t", log, "ada", "scrapped"); err == nil || sallyport.CodeOf(err) != code {
			t.Errorf("%s: %v, want %s", what, err, code)
		}
	}
	refused("a gateway that lives", log, sallyport.Conflict)
	refused("its own", a.LogWriter(), sallyport.Conflict)
	refused("none", "nobody", sallyport.NotFound)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, problems := verify(); !strings.Contains(problems, "not signed by a given key") {
		t.Errorf("without its key, and not retired: %q", problems)
	}
	r := must[audit.Retirement](t)(a.RetireLog(t.Context(), "t", log, "ada", "scrapped"))
	if r.Writer != log || r.Entries < 5 {
		t.Errorf("%+v", r)
	}
	refused("twice", log, sallyport.Conflict)
	if notes, problems := verify(); problems != "" || !strings.Contains(notes, "log "+log+" is retired, and whole: ada retired it with") {
		t.Errorf("retired: %q, %q", notes, problems)
	}
	// Whoever has the database in hands.
	const on, off = "; SET session_replication_role = DEFAULT", "SET session_replication_role = replica; "
	rows := func(table, where string) string {
		return " FROM " + table + " WHERE " + where + " log = (SELECT id FROM audit_logs WHERE writer = '" + log + "')"
	}
	save := "CREATE TABLE saved_e AS SELECT *" + rows("audit_entries", "") + "; CREATE TABLE saved_p AS SELECT *" + rows("audit_payloads", "") +
		"; CREATE TABLE saved_l AS SELECT * FROM audit_logs WHERE writer = '" + log + "'; "
	restore := "DELETE" + rows("audit_payloads", "") + "; DELETE" + rows("audit_entries", "") + "; DELETE FROM audit_logs WHERE writer = '" + log + "'; " +
		"INSERT INTO audit_logs SELECT * FROM saved_l; INSERT INTO audit_entries SELECT * FROM saved_e; INSERT INTO audit_payloads SELECT * FROM saved_p"
	server.SQL(t, kept.url, save)
	for name, tt := range map[string]struct{ sql, want string }{
		"the tail is gone": {"DELETE" + rows("audit_payloads", "seq >= 4 AND") + "; DELETE" + rows("audit_entries", "seq >= 4 AND"), "missing"},
		"it is cut back to an older head": {"DELETE" + rows("audit_payloads", "seq >= (SELECT size FROM saved_old) AND") + "; DELETE" + rows("audit_entries", "seq >= (SELECT size FROM saved_old) AND") +
			"; DELETE FROM audit_logs WHERE writer = '" + log + "'; INSERT INTO audit_logs SELECT * FROM saved_old", "the log was cut back to"},
		"an entry is other": {"UPDATE audit_payloads SET payload = '{\"n\":1}' WHERE seq = 2 AND log = (SELECT id FROM audit_logs WHERE writer = '" + log + "')", "payload"},
		"the log is gone": {"DELETE" + rows("audit_payloads", "") + "; DELETE" + rows("audit_entries", "") + "; DELETE FROM audit_logs WHERE writer = '" + log + "'",
			"the log is gone: ada retired it"},
	} {
		server.SQL(t, kept.url, off+tt.sql+on)
		if _, problems := verify(); !strings.Contains(problems, tt.want) {
			t.Errorf("%s: %q", name, problems)
		}
		server.SQL(t, kept.url, off+restore+on)
		if _, problems := verify(); problems != "" {
			t.Fatalf("%s, put back: %q", name, problems)
		}
	}
	write(lost.start(t, time.Hour), 1) // it comes back all the same
	if _, problems := verify(); !strings.Contains(problems, "some of them written later: ada retired it") {
		t.Errorf("it writes on: %q", problems)
	}
}
