// Package whole checks offline that what a gateway keeps is what it was.
package whole

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/cli"
)

// A Finding is one thing that was looked at.
type Finding struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Said string `json:"said"`
	Hint string `json:"hint,omitempty"`

	Lacking bool `json:"lacking,omitempty"` // it is not there, and need not be
}

// Record checks the whole record, as `sallyport audit verify` does, and says what
// there is.
func Record(ctx context.Context, a *cli.App) (string, error) {
	rep, err := a.Verify(ctx, nil, nil)
	if err != nil {
		return "", err
	}
	if !rep.OK() {
		what := make([]string, 0, 3)
		for _, p := range rep.Problems[:min(3, len(rep.Problems))] {
			what = append(what, p.What)
		}
		return "", &sallyport.Error{Message: fmt.Sprintf("problems: %d: %s", len(rep.Problems), strings.Join(what, "; ")), Hint: "`sallyport audit verify` shows each"}
	}
	var entries int64
	for _, l := range rep.Logs {
		entries += int64(l.Entries)
	}
	return fmt.Sprintf("logs: %d, entries: %d, nothing altered", len(rep.Logs), entries), nil
}

// Pins holds each pinned definition of a tenant against its digest.
func Pins(ctx context.Context, a *cli.App, tenant string) (string, error) {
	db, err := a.ReadStore(ctx)
	if err != nil {
		return "", err
	}
	defer db.Close()
	pins, err := db.Pins(ctx, tenant, "")
	if err != nil {
		return "", err
	}
	var wrong []string
	for _, p := range pins {
		if sum := sha256.Sum256(p.Definition); hex.EncodeToString(sum[:]) != p.Digest {
			wrong = append(wrong, p.Server+"/"+p.Name)
		}
	}
	if len(wrong) > 0 {
		return "", &sallyport.Error{
			Message: "pinned definitions that are not what their digests say: " + strings.Join(wrong, ", "),
			Hint:    "somebody wrote to the database; such a tool is quarantined",
		}
	}
	return fmt.Sprintf("definitions: %d, each as it was pinned", len(pins)), nil
}

// Tools says which tools of servers wait for a human, which ones to be
// wary of, and which ones are on their way out.
func Tools(ctx context.Context, a *cli.App) (all []Finding) {
	var out struct {
		Tools []adminapi.ToolInfo `json:"tools"`
	}
	if err := a.API(ctx, "GET", "/tools", nil, &out); err != nil {
		return []Finding{{What: "tools of servers", Said: err.Error(), Hint: "`sallyport tools list` asks again"}}
	}
	for _, t := range out.Tools {
		what := "tool " + t.Name
		if t.Status == sallyport.ToolQuarantined {
			hint := fmt.Sprintf("look at it with `sallyport tools diff %[1]s`, then `sallyport tools approve %[1]s`", t.Name)
			if t.Server == "" { // the operator's own
				hint = "look at what changed, then correct its manifest and run `sallyport policy reload`"
			}
			all = append(all, Finding{What: what, Said: "quarantined: " + t.Reason, Hint: hint})
		}
		if t.Deprecated != "" {
			all = append(all, Finding{What: what, OK: t.Status != sallyport.ToolRetired, Said: string(t.Status) + ", " + t.Deprecated})
		}
		for _, r := range t.Remarks {
			all = append(all, Finding{What: what, OK: true, Said: "flagged: " + r})
		}
	}
	return all
}
