package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/approval/passkey"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/redact/visible"
	"sallyport.dev/sallyport/store/configured"
	"sallyport.dev/sallyport/store/relational"
)

func (a *App) auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Verify, search and export the record"}
	cmd.AddCommand(a.auditVerify(), a.auditSearch(), a.auditExport(), a.auditRetire())
	return cmd
}

func (a *App) auditVerify() *cobra.Command {
	var heads, keys []string
	cmd := &cobra.Command{
		Use: "verify [FILE|-]", Short: "Prove that nothing in the record was altered; works offline and while a gateway runs", Args: cobra.MaximumNArgs(1),
		Long: "Recompute the whole log and hold it against its signed head, and against heads kept elsewhere (--head), which also shows whether the log was cut back.\n\n" +
			"With FILE, what `audit export` wrote is checked instead, anywhere, with nothing but the public keys: those of --key, or of the data folder here.",
		Example: "  sallyport audit verify\n  sallyport audit verify record.jsonl --key audit.pub --head audit-heads",
		RunE: func(cmd *cobra.Command, args []string) error {
			check := func() (audit.Report, error) { return a.Verify(cmd.Context(), heads, keys) }
			if len(args) == 1 {
				check = func() (audit.Report, error) { return a.verifyExport(args[0], heads, keys) }
			}
			rep, err := check()
			if err != nil {
				return err
			}
			if err := a.Show(rep, func() error { a.showReport(rep); return nil }); err != nil {
				return err
			}
			if !rep.OK() {
				return Exit(ExitTool)
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&heads, "head", nil, "file with heads kept elsewhere (default: those of the data folder and of audit.heads)")
	cmd.Flags().StringArrayVar(&keys, "key", nil, "file with a public key kept elsewhere (default: the data folder's own)")
	return cmd
}

// Verify checks the whole record; heads and keys are files, none are those of
// the data folder.
func (a *App) Verify(ctx context.Context, heads, keys []string) (audit.Report, error) {
	db, err := a.ReadStore(ctx)
	if err != nil {
		return audit.Report{}, err
	}
	defer db.Close()
	o, last := audit.Options{}, 0
	own := len(heads) == 0
	if own {
		heads = a.ownHeads()
	}
	for _, h := range heads {
		b, err := os.ReadFile(h)
		if own && errors.Is(err, fs.ErrNotExist) {
			last = 0
			continue
		}
		if err != nil {
			return audit.Report{}, err
		}
		last = len(b)
		o.Head = audit.Heads(o.Head, b)
	}
	if o.PublicKeys, err = publicKeys(filepath.Join(a.Data, "keys"), keys); err != nil {
		return audit.Report{}, err
	}
	rep, err := audit.Verify(ctx, db, o)
	if err != nil {
		return rep, err
	}
	stand, wrong, err := passkey.CheckRecord(ctx, db)
	if err != nil {
		return rep, err
	}
	rep.Problems = append(rep.Problems, wrong...)
	if stand > 0 {
		rep.Notes = append(rep.Notes, fmt.Sprintf("%d approvals are signed by passkeys; the signatures stand", stand))
	}
	// What init and serve always leave behind, and somebody took away.
	if last == 0 {
		rep.Problems = append(rep.Problems, audit.Problem{Writer: "?", Seq: -1,
			What: "no head is kept in " + heads[len(heads)-1] + ", where each is written: give --head if the gateway has another configuration"})
	}
	if !slices.ContainsFunc(rep.Logs, func(l audit.LogReport) bool { return l.Entries > 0 }) {
		rep.Problems = append(rep.Problems, audit.Problem{Writer: "?", Seq: -1, What: "the record is empty, though init writes its first entries"})
	}
	rep.Problems, rep.Notes = orEmpty(rep.Problems), orEmpty(rep.Notes)
	return rep, nil
}

// verifyExport checks a file that `audit export` wrote; "-" is standard input.
func (a *App) verifyExport(file string, heads, keys []string) (rep audit.Report, err error) {
	var o audit.Options
	if o.PublicKeys, err = publicKeys(filepath.Join(a.Data, "keys"), keys); errors.Is(err, fs.ErrNotExist) && len(keys) == 0 {
		return rep, &sallyport.Error{Code: sallyport.Invalid, Message: "there is no public key here to check it with", Hint: "give --key FILE: the keys/audit.pub of the gateway that wrote it"}
	}
	if err != nil {
		return rep, err
	}
	own := len(heads)+len(keys) == 0 // else it is another gateway's file
	if own {
		heads = a.ownHeads()
	}
	for _, h := range heads {
		b, err := os.ReadFile(h)
		if err != nil && !(own && errors.Is(err, fs.ErrNotExist)) {
			return rep, err
		}
		o.Head = audit.Heads(o.Head, b)
	}
	in := a.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return rep, err
		}
		defer f.Close()
		in = f
	}
	rep, err = audit.VerifyExport(in, o)
	rep.Problems, rep.Notes = orEmpty(rep.Problems), orEmpty(rep.Notes)
	return rep, err
}

// ownHeads are the files that the data folder's gateway keeps its heads in: what
// init wrote to, and last what serve writes to.
func (a *App) ownHeads() []string {
	own := []string{HeadsPath(a.Data, "")}
	if c, err := config.Load(filepath.Join(a.Data, "sallyport.yaml")); err == nil && c.Audit.Heads != "" {
		own = append(own, c.Audit.Heads)
	}
	return own
}

// orEmpty is s, as JSON that is [] and never null.
func orEmpty[T any](s []T) []T { return append([]T{}, s...) }

func publicKeys(dir string, files []string) (all []string, err error) {
	if len(files) == 0 {
		return audit.LoadPublicKeys(dir)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		all = append(all, strings.Fields(string(b))...)
	}
	return all, nil
}

// HeadsPath is the second place for signed heads: what the configuration says,
// else a file beside the keys.
func HeadsPath(data, configured string) string {
	if configured != "" {
		return configured
	}
	return filepath.Join(data, "keys", "audit-heads")
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// ReadStore opens the database of the data folder's gateway for reading only.
func (a *App) ReadStore(ctx context.Context) (*relational.Store, error) {
	setting := configured.SQLite
	c, err := config.Load(filepath.Join(a.Data, "sallyport.yaml"))
	if err == nil {
		setting = c.Store
	} else if sallyport.CodeOf(err) != sallyport.NotFound {
		return nil, err // the database may be another one
	}
	return configured.OpenReadOnly(ctx, setting, a.Data)
}

// shownProblems is how many of a record's problems a terminal gets, of the first and of
// the last: a file that is no export has one on each line.
const shownProblems = 10

func (a *App) showReport(r audit.Report) {
	for _, l := range r.Logs {
		fmt.Fprintf(a.Out, "log %s: %d entries, root %s\n", l.Writer, l.Entries, l.Root)
		if l.KeptHeads > 0 {
			fmt.Fprintf(a.Out, "  agrees with %d heads kept elsewhere\n", l.KeptHeads)
		}
		if len(l.Erased) > 0 {
			fmt.Fprintf(a.Out, "  payloads erased, and accounted for: %v\n", l.Erased)
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(a.Out, "note: %s\n", visible.String(n))
	}
	for i, p := range r.Problems {
		if left := len(r.Problems) - 2*shownProblems; left > 0 && i >= shownProblems && i < shownProblems+left {
			if i == shownProblems {
				fmt.Fprintf(a.Out, "… %d more (--json shows all)\n", left)
			}
			continue
		}
		fmt.Fprintf(a.Out, "PROBLEM: %s\n", visible.String(p.String()))
	}
	if r.OK() {
		fmt.Fprintln(a.Out, "the record verifies")
	} else {
		fmt.Fprintf(a.Out, "the record does NOT verify; problems: %d\n", len(r.Problems))
	}
}

func (a *App) auditSearch() *cobra.Command {
	q := map[string]*string{}
	var limit int
	cmd := &cobra.Command{Use: "search", Short: "Search the record, newest first", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		v := url.Values{"limit": {strconv.Itoa(limit)}}
		for name, value := range q {
			if *value != "" {
				v.Set(name, *value)
			}
		}
		var out struct {
			Entries []adminapi.AuditEntry `json:"entries"`
		}
		if err := a.API(cmd.Context(), "GET", "/audit?"+v.Encode(), nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error { return a.showEntries(out.Entries) })
	}}
	for name, usage := range map[string]string{
		"call": "only the call with this id", "principal": "only of this agent", "tool": "only of this tool",
		"kind": "only intent, outcome, ticket, decision, admin, start, saga or server",
		"code": "only what ended so: ok, denied, approval_pending, …", "text": "only with this text anywhere in the entry",
		"since": "not before this time, such as 2026-01-31T08:00:00Z, or so long ago, such as 2h", "until": "before this time",
	} {
		q[name] = cmd.Flags().String(name, "", usage)
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many")
	return cmd
}

func (a *App) showEntries(entries []adminapi.AuditEntry) error {
	var rows [][]string
	for _, e := range entries {
		var p struct {
			sallyport.Record
			Action  string                `json:"action"`
			By      string                `json:"by"`
			State   sallyport.TicketState `json:"state"` // of a ticket that is opened
			To      sallyport.TicketState `json:"to"`    // of one that goes on
			Binding sallyport.Binding     `json:"binding"`
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			return fmt.Errorf("entry %d: %w", e.Seq, err)
		}
		ended := "-"
		if e.Kind == sallyport.EntryServer {
			var err error
			if p.By, p.Target, err = serverEntry(e.Payload); err != nil {
				return fmt.Errorf("entry %d: %w", e.Seq, err)
			}
		}
		if e.Kind == sallyport.EntryOutcome {
			ended = "ok" // as --code calls it
		}
		what, who := strings.TrimSpace(p.Action+" "+p.Target), cmp.Or(p.Principal, p.By)
		if state := cmp.Or(string(p.To), string(p.State)); state != "" {
			what, who = state+" "+cmp.Or(p.Target, p.Binding.Tool), cmp.Or(p.By, p.Binding.Principal)
		}
		rows = append(rows, []string{strconv.FormatInt(e.Seq, 10), e.Time.Format(time.RFC3339), string(e.Kind), who, what, cmp.Or(string(p.Code), ended), e.CallID})
	}
	return a.Table("SEQ TIME KIND WHO WHAT CODE CALL", rows)
}

// serverEntry says in a line what a server did beside its answers.
func serverEntry(payload json.RawMessage) (who, what string, err error) {
	var r sallyport.ServerReport
	if err := json.Unmarshal(payload, &r); err != nil {
		return "", "", err
	}
	var parts []string
	for _, c := range r.Connections {
		word := cmp.Or(c.Reason, "denied")
		if c.Allowed {
			word = "reached"
		}
		parts = append(parts, fmt.Sprintf("%s %s (%d)", word, c.Target, c.Count))
	}
	for _, l := range r.LimitsHit {
		parts = append(parts, "hit the limit "+l)
	}
	const shown = 3
	if n := len(parts) - shown; n > 0 {
		parts = append(parts[:shown], fmt.Sprintf("and %d more", n))
	}
	return r.Server, strings.Join(parts, ", "), nil
}

func (a *App) auditRetire() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "retire LOG", Short: "Write down where the log of a gateway ended that is gone for good", Args: cobra.ExactArgs(1),
		Long: "Of several gateways on one database, one may be gone with its key. Its log stays; this one vouches for it from now on. `audit verify` then checks it without its key, and still notices when entries of it are missing, altered or added.",
		RunE: func(cmd *cobra.Command, args []string) error {
			in, out := map[string]string{"log": args[0], "reason": reason}, struct {
				Entries int64 `json:"entries"`
			}{}
			if err := a.API(cmd.Context(), "POST", "/audit/retire", in, &out); err != nil {
				return err
			}
			return a.Show(out, func() error {
				_, err := fmt.Fprintf(a.Out, "retired log %s with %d entries\n", visible.String(args[0]), out.Entries)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why its gateway will not come back, for the record")
	return cmd
}

func (a *App) auditExport() *cobra.Command {
	return &cobra.Command{Use: "export", Short: "Write the whole record as JSON lines, with proofs", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		db, err := a.ReadStore(cmd.Context())
		if err != nil {
			return err
		}
		return errors.Join(audit.Export(cmd.Context(), db, a.Out, sallyport.DefaultTenant), db.Close())
	}}
}
