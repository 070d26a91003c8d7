package sqlite_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store/sqlite"
)

// exec changes the database as somebody with the file in hands would.
func exec(t *testing.T, p *place, stmts ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", p.db())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range append([]string{
		"DROP TRIGGER IF EXISTS audit_entries_append_only", "DROP TRIGGER IF EXISTS audit_entries_kept",
		"DROP TRIGGER IF EXISTS audit_hashes_append_only", "DROP TRIGGER IF EXISTS audit_hashes_kept"}, stmts...) {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func fill(t *testing.T, p *place, from, to int) {
	t.Helper()
	s := p.Open(t, time.Now)
	defer s.Close()
	for i := from; i < to; i++ {
		e := sallyport.Entry{Tenant: "t", Kind: sallyport.EntryOutcome, CallID: fmt.Sprint("call", i), Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}
		if err := s.AppendEntries(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func verify(t *testing.T, p *place, heads []byte) audit.Report {
	t.Helper()
	s, err := sqlite.OpenReadOnly(p.db())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rep, err := audit.Verify(t.Context(), s, audit.Options{PublicKeys: p.PublicKeys(), Head: heads})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

const n = 40 // entries in the log before it is tampered with

func TestTO39_TamperedRows(t *testing.T) {
	for name, tt := range map[string]struct {
		sql  string
		seq  int64  // that a problem must name
		what string // that it must say
	}{
		"payload altered":      {`UPDATE audit_payloads SET payload = '{"n":99}' WHERE seq = 17`, 17, "payload"},
		"payload by one space": {`UPDATE audit_payloads SET payload = payload || ' ' WHERE seq = 17`, 17, "payload"},
		"salt altered":         {`UPDATE audit_payloads SET salt = randomblob(32) WHERE seq = 17`, 17, "payload"},
		"payload row deleted":  {`DELETE FROM audit_payloads WHERE seq = 17`, 17, "missing"},
		"payload nulled":       {`UPDATE audit_payloads SET payload = NULL, salt = NULL WHERE seq = 17`, 17, "missing"},
		"payload said erased":  {`UPDATE audit_payloads SET payload = NULL, salt = NULL, erased = 20 WHERE seq = 17`, 17, "does not record an erasure"},
		"erased in the future": {`UPDATE audit_payloads SET payload = NULL, salt = NULL, erased = 99 WHERE seq = 17`, 17, "is missing"},
		"payloads swapped": {`UPDATE audit_payloads SET payload = (SELECT payload FROM audit_payloads q WHERE q.seq = 35 - audit_payloads.seq)
			WHERE seq IN (17, 18)`, 17, "payload"},
		"entry's time":       {`UPDATE audit_entries SET time = time + 1 WHERE seq = 17`, 17, "altered"},
		"entry's tenant":     {`UPDATE audit_entries SET tenant = 'u' WHERE seq = 17`, 17, "altered"},
		"entry's kind":       {`UPDATE audit_entries SET kind = 'intent' WHERE seq = 17`, 17, "altered"},
		"entry's call":       {`UPDATE audit_entries SET call_id = 'x' WHERE seq = 17`, 17, "altered"},
		"entry's commitment": {`UPDATE audit_entries SET commitment = randomblob(32) WHERE seq = 17`, 17, "altered"},
		"entry deleted":      {`DELETE FROM audit_entries WHERE seq = 17`, 17, "missing"},
		"first deleted":      {`DELETE FROM audit_entries WHERE seq = 0`, 0, "missing"},
		"last deleted":       {`DELETE FROM audit_entries WHERE seq = 39`, 39, "missing"},
		"several deleted":    {`DELETE FROM audit_entries WHERE seq BETWEEN 17 AND 25`, 17, "9 entries, 17 to 25, are missing"},
		"all deleted":        {`DELETE FROM audit_entries`, 0, "40 entries"},
		"entries swapped": {`UPDATE audit_entries SET (time, call_id, commitment) = (SELECT time, call_id, commitment FROM audit_entries q WHERE q.seq = 35 - audit_entries.seq)
			WHERE seq IN (17, 18)`, 17, "altered"},
		"stored leaf altered":  {`UPDATE audit_hashes SET hash = randomblob(32) WHERE idx = 1`, 1, "the entry itself is intact"},
		"stored inner altered": {`UPDATE audit_hashes SET hash = randomblob(32) WHERE idx = 2`, 0, "the entry itself is intact"},
		"stored hash deleted":  {`DELETE FROM audit_hashes WHERE idx = 2`, 0, "stored hash"},
		"row beyond the head": {`INSERT INTO audit_entries SELECT log, 40, tenant, time, kind, call_id, commitment FROM audit_entries WHERE seq = 39`,
			40, "beyond"},
		"size set back":  {`UPDATE audit_logs SET size = 30`, -1, "its head says 40"},
		"size set ahead": {`UPDATE audit_logs SET size = 1 << 60`, 40, "missing"},
		"head of more":   {`UPDATE audit_logs SET head = CAST(replace(CAST(head AS TEXT), char(10) || '40' || char(10), char(10) || '41' || char(10)) AS BLOB)`, -1, "its head says 41"},
		"head's time":    {`UPDATE audit_logs SET head = CAST(replace(CAST(head AS TEXT), '20', '21') AS BLOB)`, -1, "not signed"},
		"head emptied":   {`UPDATE audit_logs SET head = x''`, -1, "malformed"},
		"log row gone":   {`DELETE FROM audit_logs`, -1, "the log is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			fill(t, p, 0, n)
			if rep := verify(t, p, p.Heads(t)); !rep.OK() || rep.Logs[0].Entries != n || rep.Logs[0].KeptHeads != n {
				t.Fatalf("before: %+v", rep)
			}
			exec(t, p, tt.sql)
			rep := verify(t, p, p.Heads(t))
			for _, pr := range rep.Problems {
				if pr.Seq == tt.seq && strings.Contains(pr.What, tt.what) {
					return
				}
			}
			t.Errorf("no problem of entry %d says %q: %v", tt.seq, tt.what, rep.Problems)
		})
	}
}

// Whoever cuts the log back, and puts an older head in its place, has a log
// that looks whole; the head kept elsewhere tells.
func TestTO39_Truncated(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 0, 30)
	before, err := os.ReadFile(p.headsFile())
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndex(string(before), "sallyport.dev/audit/")
	at = strings.LastIndex(string(before[:at]), "\nsallyport.dev/audit/") + 1
	older := string(before[at:])
	fill(t, p, 30, n)
	exec(t, p,
		"DELETE FROM audit_payloads WHERE seq >= 30", "DELETE FROM audit_entries WHERE seq >= 30",
		"DELETE FROM audit_hashes WHERE idx >= 56", // tlog.StoredHashCount(30)
		"UPDATE audit_logs SET size = 30, head = CAST('"+older+"' AS BLOB)")
	if rep := verify(t, p, nil); !rep.OK() || rep.Logs[0].Entries != 30 || len(rep.Notes) == 0 {
		t.Fatalf("without a kept head it should look whole, with a note: %+v", rep)
	}
	rep := verify(t, p, p.Heads(t))
	if rep.OK() || !strings.Contains(rep.Problems[0].What, "cut back: it has 30 entries") {
		t.Errorf("cut back: %+v", rep.Problems)
	}
	if _, err := p.open(time.Now); err == nil || !strings.Contains(err.Error(), "cut back") {
		t.Errorf("a gateway went on with it: %v", err)
	}
}

// A log rewritten as a whole is consistent, and signed by the wrong key.
func TestTO39_Rewritten(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 0, n)
	kept := p.Heads(t)
	forger := newPlace(t)
	fill(t, forger, 0, n)
	if rep := verify(t, forger, forger.Heads(t)); !rep.OK() { // consistent in itself
		t.Fatal(rep)
	}
	victim := &place{dir: forger.dir, key: p.key}
	for name, heads := range map[string][]byte{"with kept heads": kept, "without": nil} {
		rep := verify(t, victim, heads)
		if rep.OK() || !strings.Contains(fmt.Sprint(rep.Problems), "not signed by a given key") {
			t.Errorf("%s: %+v", name, rep)
		}
	}
	// The same under the victim's name: the writer's id is not a secret.
	exec(t, forger, "UPDATE audit_logs SET writer = '"+p.key.Writer()+"'")
	rep := verify(t, victim, kept)
	if rep.OK() || !strings.Contains(fmt.Sprint(rep.Problems), "do not lead to the head kept elsewhere") {
		t.Errorf("under the victim's name: %+v", rep)
	}
	if s, err := victim.open(time.Now); err == nil {
		s.Close()
		t.Error("a gateway went on with a forged log")
	}
}

// With the key stolen as well, only the head kept elsewhere is left.
func TestTO39_RewrittenWithTheKey(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 0, n)
	kept := p.Heads(t)
	for _, f := range []string{p.db(), p.headsFile()} {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, p, 0, n+5)
	if rep := verify(t, p, nil); !rep.OK() {
		t.Fatalf("%+v", rep)
	}
	rep := verify(t, p, kept)
	if rep.OK() || !strings.Contains(rep.Problems[0].What, "one of the entries 0 to 0 was altered") {
		t.Errorf("%+v", rep.Problems)
	}
	if err := os.WriteFile(p.headsFile(), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.open(time.Now); err == nil || !strings.Contains(err.Error(), "does not lead to its last head") {
		t.Errorf("a gateway went on with it: %v", err)
	}
}

func TestForgedKeptHead(t *testing.T) {
	p, other := newPlace(t), newPlace(t)
	fill(t, p, 0, 3)
	fill(t, other, 0, 9)
	forged := strings.ReplaceAll(string(other.Heads(t)), other.key.Writer(), p.key.Writer())
	rep := verify(t, p, []byte(forged))
	if rep.OK() || !strings.Contains(fmt.Sprint(rep.Problems), "not signed by a given key") {
		t.Errorf("%+v", rep.Problems)
	}
	torn := p.Heads(t)
	if rep := verify(t, p, torn[:len(torn)-10]); !rep.OK() || !strings.Contains(fmt.Sprint(rep.Notes), "incomplete") {
		t.Errorf("a torn last line: %+v", rep)
	}
}

// Verify runs beside a gateway that writes, and finds nothing wrong.
func TestVerifyWhileWriting(t *testing.T) {
	p := newPlace(t)
	fill(t, p, 0, 5)
	stop, done := make(chan struct{}), make(chan error)
	s := p.Open(t, time.Now)
	defer s.Close()
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
				if err := s.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Payload: []byte("{}")}); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	for range 20 {
		if rep := verify(t, p, p.Heads(t)); !rep.OK() {
			t.Errorf("%v", rep.Problems)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
