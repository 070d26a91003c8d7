package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/approval/webhook"
	"sallyport.dev/sallyport/redact/visible"
)

func (a *App) passkeysCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "passkeys", Short: "Enrol the keys that sign what cannot be undone"}
	var label string
	add := &cobra.Command{Use: "add", Short: "Print a link to enrol a passkey, and wait until it is (needs `sallyport login`)", Args: cobra.NoArgs,
		Long: "Print a link to enrol a passkey in a browser, and wait until that is done. The link serves once, for ten minutes. A first\n" +
			"passkey needs the login only; another one is confirmed with a passkey that is enrolled already.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.passkeyLink(cmd.Context(), map[string]string{"kind": "add", "label": label}, "enrol it here")
			if err != nil {
				return err
			}
			return a.Show(l, func() error { _, err := fmt.Fprintln(a.Out, "enrolled"); return err })
		}}
	add.Flags().StringVar(&label, "name", "passkey", "what you call it")
	confirm := &cobra.Command{Use: "confirm", Short: "Confirm a login with your passkey, for what changes who may decide", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		l, err := a.passkeyLink(cmd.Context(), map[string]string{"kind": "confirm"}, "confirm here that it is you")
		if err != nil {
			return err
		}
		return a.Show(l, func() error { _, err := fmt.Fprintln(a.Out, "confirmed"); return err })
	}}
	var reason string
	remove := &cobra.Command{Use: "remove ID", Short: "Remove a passkey of another admin (needs `sallyport login`)", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return a.Did(cmd, "DELETE", "/passkeys/"+url.PathEscape(args[0])+"?reason="+url.QueryEscape(reason), nil, "removed "+args[0])
	}}
	remove.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.AddCommand(add, confirm, remove, &cobra.Command{Use: "list", Short: "List the passkeys of every admin", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Passkeys []adminapi.PasskeyInfo `json:"passkeys"`
		}
		if err := a.API(cmd.Context(), "GET", "/passkeys", nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			var rows [][]string
			for _, k := range out.Passkeys {
				used := "never"
				if !k.Used.IsZero() {
					used = k.Used.Format(time.RFC3339)
				}
				rows = append(rows, []string{k.ID, k.Admin, k.RPID, used, k.Label})
			}
			return a.Table("PASSKEY ADMIN FOR LAST-USED NAME", rows)
		})
	}})
	return cmd
}

// passkeyLink asks for a link, shows it, and waits until it was used. What is
// not needed has no link.
func (a *App) passkeyLink(ctx context.Context, in map[string]string, what string) (l adminapi.PasskeyLink, err error) {
	if err := a.API(ctx, "POST", "/passkeys/links", in, &l); err != nil || !l.Needed {
		return l, err
	}
	out := a.Out
	if a.JSON {
		out = a.Err
	}
	fmt.Fprintf(out, "%s, within %s:\n\n  %s\n\nwaiting …\n", what, time.Until(l.Expires).Round(time.Minute), visible.String(l.URL))
	shown := ""
	for {
		select {
		case <-ctx.Done():
			return l, &sallyport.Error{Code: sallyport.Canceled, Message: "interrupted", Hint: "the link stays good until it was used or its time has passed"}
		case <-time.After(time.Second):
		}
		if err := a.API(ctx, "GET", "/passkeys/links/"+url.PathEscape(l.ID), nil, &l); err != nil {
			return l, err
		}
		if l.Error != "" && l.Error != shown {
			shown = l.Error
			fmt.Fprintf(a.Err, "refused: %s\n", visible.String(shown))
		}
		switch l.State {
		case "used":
			return l, nil
		case "expired":
			return l, &sallyport.Error{Code: sallyport.Pending, Step: sallyport.Approve, Message: "nobody used the link in time", Hint: "run the command again for another one"}
		}
	}
}

// sign has a ticket signed in a browser, where that is needed, and waits for
// it. done is false where no signature is needed: the login is enough.
func (a *App) sign(ctx context.Context, ticket, reason, hash string) (t sallyport.Ticket, done bool, err error) {
	l, err := a.passkeyLink(ctx, map[string]string{"kind": "sign", "ticket": ticket, "reason": reason, "hash": hash}, "this cannot be undone: read it and sign it here")
	if err != nil || !l.Needed {
		return t, false, err
	}
	for {
		var shown adminapi.ShownTicket
		if err := a.API(ctx, "GET", "/approvals/"+url.PathEscape(ticket), nil, &shown); err != nil {
			return t, true, err
		}
		// The link is used a moment before the decision is stored. A ticket that
		// needs more than one approval stays pending.
		if shown.State != sallyport.TicketPending || slices.ContainsFunc(shown.Votes, func(v sallyport.Vote) bool { return v.By == l.Admin }) {
			return shown.Ticket, true, nil
		}
		if err := a.API(ctx, "GET", "/passkeys/links/"+url.PathEscape(l.ID), nil, &l); err == nil && l.Error != "" {
			return shown.Ticket, true, &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Approve, Message: "signed, but not decided: " + l.Error, Ticket: ticket}
		}
		select {
		case <-ctx.Done():
			return t, true, &sallyport.Error{Code: sallyport.Canceled, Message: "interrupted"}
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (a *App) webhooksCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "webhooks", Short: "Look after the tools that are told of tickets, and may decide them"}
	list := &cobra.Command{Use: "list", Short: "List the webhooks and what waits for them", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Webhooks []adminapi.WebhookInfo `json:"webhooks"`
		}
		if err := a.API(cmd.Context(), "GET", "/webhooks", nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			var rows [][]string
			for _, w := range out.Webhooks {
				decides := "no"
				if w.Decides {
					decides = "yes"
				}
				rows = append(rows, []string{w.Name, cmp.Or(w.Host, "-"), decides, fmt.Sprint(w.Waiting), fmt.Sprint(w.Sent), fmt.Sprint(w.Dead), w.Error})
			}
			return a.Table("NAME TELLS DECIDES WAITING SENT DEAD LAST-ERROR", rows)
		})
	}}
	test := &cobra.Command{Use: "test NAME", Short: "Send a message of type test, now", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return a.Did(cmd, "POST", "/webhooks/"+url.PathEscape(args[0])+"/test", struct{}{}, "taken by "+args[0])
	}}
	retry := &cobra.Command{Use: "retry NAME", Short: "Send again what was given up", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		var out struct {
			Retried int `json:"retried"`
		}
		if err := a.API(cmd.Context(), "POST", "/webhooks/"+url.PathEscape(args[0])+"/retry", struct{}{}, &out); err != nil {
			return err
		}
		return a.Show(out, func() error { _, err := fmt.Fprintf(a.Out, "%d to be sent again\n", out.Retried); return err })
	}}
	secret := &cobra.Command{Use: "secret", Short: "Print a new signing secret; works offline", Args: cobra.NoArgs,
		Long: "Print a new signing secret. Store it with `sallyport webhooks secret | sallyport secrets set NAME`; a secret that the other\n" +
			"tool must know, too, is printed first and then given to both.",
		RunE: func(*cobra.Command, []string) error {
			s := webhook.NewSecret()
			return a.Show(map[string]string{"secret": s}, func() error { _, err := fmt.Fprintln(a.Out, s); return err })
		}}
	cmd.AddCommand(list, test, retry, secret)
	return cmd
}
