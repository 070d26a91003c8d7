// Package cli is the command line of a gateway: the commands that talk to it
// through the admin API, and those that work offline.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/redact/visible"
)

// An App is what every command needs: where the data is, and where to write.
type App struct {
	Data string // data folder, absolute once a command runs
	JSON bool   // answer in JSON
	In   io.Reader
	Out  io.Writer
	Err  io.Writer
}

// Exit codes, part of the stable surface.
const (
	ExitOK          = 0
	ExitTool        = 1 // the tool failed
	ExitUsage       = 2
	ExitDenied      = 3 // denied or rejected
	ExitPending     = 4
	ExitUnavailable = 5
	ExitSandbox     = 125 // `sandbox run`: Sallyport itself failed
)

// An Exit carries a command's status to main; its message is already shown.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// status is what a parent sees of a status: one that does not fit, such as a WASI
// module's, is not cut to something else, which may be 0.
func status(n int) int {
	if n < 0 || n > 255 {
		return 255
	}
	return n
}

// ExitCode is the status that an error ends the program with.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[Exit](err); ok {
		return status(int(e))
	}
	if m, ok := errors.AsType[*Misuse](err); ok {
		return m.Code
	}
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok {
		return ExitUsage
	}
	switch e.Code {
	case sallyport.Invalid, sallyport.TooLarge:
		return ExitUsage
	case sallyport.Denied, sallyport.Rejected, sallyport.Unauthenticated, sallyport.NotFound, sallyport.Quarantined, sallyport.Conflict:
		return ExitDenied
	case sallyport.Pending:
		return ExitPending
	case sallyport.Unavailable, sallyport.RateLimited, sallyport.InFlight, sallyport.Internal, sallyport.AuthorizationRequired:
		return ExitUnavailable
	case sallyport.Canceled:
		if e.Ticket != "" { // taken back before it ran
			return ExitDenied
		}
		return ExitTool
	default: // upstream_error, timeout, outcome_unknown
		return ExitTool
	}
}

// Report shows an error to a person: what, then what to do.
func (a *App) Report(err error) {
	if _, ok := errors.AsType[Exit](err); ok {
		return
	}
	e, ok := errors.AsType[*sallyport.Error](err)
	m, misuse := errors.AsType[*Misuse](err)
	if a.JSON {
		f := map[string]any{"code": "usage", "message": err.Error()}
		if misuse {
			f["hint"] = m.hint()
		}
		if ok {
			f = map[string]any{"code": e.Code, "step": e.Step, "message": e.Message, "hint": e.Hint, "ticket": e.Ticket, "call_id": e.CallID}
		}
		if ok && e.RetryAfter > 0 {
			f["retry_after"] = e.RetryAfter.Seconds()
		}
		for k, v := range f {
			if v == "" || v == sallyport.Step("") {
				delete(f, k)
			}
		}
		a.Print(map[string]any{"error": f})
		return
	}
	if !ok {
		fmt.Fprintf(a.Err, "sallyport: %s\n", visible.String(err.Error()))
		switch {
		case misuse:
			fmt.Fprintf(a.Err, "  hint: %s\n", visible.String(m.hint()))
		case errors.Is(err, fs.ErrPermission):
			fmt.Fprintln(a.Err, "  hint: use the account that owns it, or root; or another folder, with --data")
		}
		return
	}
	fmt.Fprintf(a.Err, "sallyport: %s\n", visible.String(e.Message))
	if e.Step != "" {
		fmt.Fprintf(a.Err, "  %s at step %s\n", e.Code, e.Step)
	}
	if e.Ticket != "" {
		fmt.Fprintf(a.Err, "  ticket: %s\n", visible.String(e.Ticket))
	}
	if e.CallID != "" {
		fmt.Fprintf(a.Err, "  call: %s\n", visible.String(e.CallID))
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(a.Err, "  retry_after: %s\n", max(e.RetryAfter.Round(time.Second), time.Second))
	}
	hint := e.Hint
	if e.Code == sallyport.Pending && e.Ticket != "" {
		hint = fmt.Sprintf("a human decides: `sallyport approvals show %[1]s`, then approve or reject; then run this again with --ticket %[1]s", e.Ticket)
	}
	if hint != "" {
		fmt.Fprintf(a.Err, "  hint: %s\n", visible.String(hint))
	}
}

// Said is an error in a line for people: what is wrong, then what to do.
func Said(err error) (said, hint string) {
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		return e.Message, e.Hint
	}
	return err.Error(), ""
}

// Print writes v as indented JSON, in which nothing steers a terminal.
func (a *App) Print(v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(a.Out, visible.JSON(b.String()))
	return err
}

// Table writes rows in columns, whatever came from elsewhere made visible.
func (a *App) Table(header string, rows [][]string) error {
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(header, " ", "\t"))
	for _, r := range rows {
		for i := range r {
			r[i] = strings.ReplaceAll(visible.String(r[i]), "\n", `\n`)
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	if err := w.Flush(); err != nil || len(rows) > 0 {
		return err
	}
	_, err := fmt.Fprintln(a.Err, "(none)")
	return err
}

// Show prints v as JSON under --json, else calls text.
func (a *App) Show(v any, text func() error) error {
	if a.JSON {
		return a.Print(v)
	}
	return text()
}

// CommandLine is the exact command, quoted so that nothing can hide in it.
func CommandLine(link string, argv []string) string {
	if link != "" {
		return link
	}
	q := make([]string, len(argv))
	for i, s := range argv {
		if q[i] = s; s == "" || strings.ContainsAny(s, " \t\n\"'\\$`;&|<>*?(){}[]~#!") {
			q[i] = strconv.Quote(s)
		}
	}
	return strings.Join(q, " ")
}

// DefaultData is the data folder where none is named.
func DefaultData() string {
	if d := os.Getenv("SALLYPORT_DATA"); d != "" {
		return d
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	return filepath.Join(home, ".local", "state", "sallyport")
}

// CacheDir holds what can be rebuilt: images and compiled Wasm.
func CacheDir() string { return image.CacheDir(os.Getenv, os.Geteuid()) }

// The groups that help shows the commands in.
const (
	GroupStart  = "start"
	GroupUse    = "use"
	GroupGovern = "govern"
	GroupRecord = "record"
)

// Groups are the groups' titles, in the order that help shows them.
func Groups() []*cobra.Group {
	return []*cobra.Group{
		{ID: GroupStart, Title: "Start:"},
		{ID: GroupUse, Title: "Call tools and run code:"},
		{ID: GroupGovern, Title: "Decide who may do what:"},
		{ID: GroupRecord, Title: "Look back, and measure:"},
	}
}

// InGroup puts commands into a group.
func InGroup(id string, cmds ...*cobra.Command) []*cobra.Command {
	for _, c := range cmds {
		c.GroupID = id
	}
	return cmds
}

// Commands are the commands of this package.
func (a *App) Commands() []*cobra.Command {
	return slices.Concat(
		InGroup(GroupUse, a.callCommand(), a.toolsCommand(), a.sandboxCommand(), a.tokenCommand(), a.stdioCommand()),
		InGroup(GroupGovern, a.agentsCommand(), a.loginCommand(), a.approvalsCommand(), a.passkeysCommand(), a.webhooksCommand(), a.riskCommand(), a.secretsCommand()),
		InGroup(GroupRecord, a.auditCommand(), a.reservationsCommand()),
		InGroup(GroupStart, a.warmCommand()),
	)
}
