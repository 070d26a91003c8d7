package cli

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
)

func (a *App) approvalsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "approvals", Short: "See and decide what waits for a human"}
	cmd.AddCommand(a.approvalsList(), a.approvalsShow(), a.approvalsDecide("approve"), a.approvalsDecide("reject"))
	return cmd
}

func (a *App) approvalsList() *cobra.Command {
	var state string
	list := &cobra.Command{Use: "list", Short: "List tickets, with what sets each apart from others for the same tool", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if state == "all" {
			state = ""
		}
		var out adminapi.TicketList
		if err := a.API(cmd.Context(), "GET", "/approvals?state="+url.QueryEscape(state), nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			byID := map[string]sallyport.Ticket{}
			for _, t := range out.Tickets {
				byID[t.ID] = t
			}
			var rows [][]string
			for _, g := range out.Groups { // the most dangerous first
				for _, m := range g.Tickets {
					t := byID[m.Ticket]
					rows = append(rows, []string{t.ID, stateOf(t), t.Binding.Principal, t.Binding.Tool, t.DecideBy.Format(time.RFC3339), first(t.Risk.Reasons),
						strings.Join(m.Differs, "; ")})
				}
			}
			return a.Table("TICKET STATE AGENT TOOL DECIDE-BY WHY DIFFERS", rows)
		})
	}}
	list.Flags().StringVar(&state, "state", "pending", "pending, approved, rejected, expired, consumed, void, withdrawn or all")
	return list
}

// stateOf is a ticket's state, with the votes that it has where they are not enough.
func stateOf(t sallyport.Ticket) string {
	if t.State != sallyport.TicketPending || len(t.Votes) == 0 {
		return string(t.State)
	}
	return fmt.Sprintf("%s(%d)", t.State, len(t.Votes))
}

// allTickets is the command that lists every ticket.
const allTickets = "sallyport approvals list --state all"

func (a *App) approvalsShow() *cobra.Command {
	var full, card bool
	show := &cobra.Command{Use: "show TICKET", Short: "Show exactly what would run, what is dangerous first", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		var t adminapi.ShownTicket
		if err := a.API(cmd.Context(), "GET", "/approvals/"+url.PathEscape(args[0]), nil, &t); err != nil {
			return Elsewhere(err, allTickets)
		}
		return a.Show(t, func() error {
			text := t.Text
			if full {
				text = t.Full
			} else if card {
				text = t.Card
			}
			_, err := fmt.Fprintln(a.Out, visible.String(text))
			return err
		})
	}}
	show.Flags().BoolVar(&full, "full", false, "all of it, however long; where the view is shortened, its last word is needed to approve")
	show.Flags().BoolVar(&card, "card", false, "as a chat shows it")
	return show
}

func (a *App) approvalsDecide(verb string) *cobra.Command {
	var in struct {
		Reason string `json:"reason,omitempty"`
		Hash   string `json:"hash,omitempty"`
		Seen   string `json:"seen,omitempty"`
	}
	c := &cobra.Command{Use: verb + " TICKET", Short: strings.ToUpper(verb[:1]) + verb[1:] + " one call (needs `sallyport login`)", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		var t sallyport.Ticket
		var signed bool
		var err error
		if verb == "approve" {
			t, signed, err = a.sign(cmd.Context(), args[0], in.Reason, in.Hash)
		}
		if err == nil && !signed {
			err = a.API(cmd.Context(), "POST", "/approvals/"+url.PathEscape(args[0])+"/"+verb, in, &t)
		}
		if err != nil {
			return Elsewhere(err, allTickets)
		}
		return a.Show(t, func() error {
			fmt.Fprintf(a.Out, "%s: %s\n", visible.String(t.ID), t.State)
			if t.State == sallyport.TicketPending {
				var yes []string
				for _, v := range t.Votes {
					yes = append(yes, v.By)
				}
				for _, d := range sallyport.Unmet(t.Widened(t.Demands), t.Votes) {
					fmt.Fprintf(a.Out, "not enough yet: it needs %s, and was approved by %s\n", visible.String(d.String()), visible.String(strings.Join(yes, ", ")))
				}
			}
			return nil
		})
	}}
	c.Flags().StringVar(&in.Reason, "reason", "", "why, for the caller and the record")
	c.Flags().StringVar(&in.Hash, "hash", "", "the hash that you saw, or at least its first 8 characters: refused if it is not the ticket's")
	if verb == "approve" {
		c.Flags().StringVar(&in.Seen, "seen", "", "the last word of the full view, for a ticket that is shown shortened")
	}
	return c
}

// AdminsCommands are those of `admins` that a running gateway answers.
func (a *App) AdminsCommands() []*cobra.Command {
	var groups []string
	add := &cobra.Command{Use: "add NAME", Short: "Add an admin; the password is shown once (needs `sallyport login`)", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		var out adminapi.AdminSecret
		if err := a.API(cmd.Context(), "POST", "/admins", map[string]any{"name": args[0], "groups": groups}, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			_, err := fmt.Fprintf(a.Out, "admin     %s\ngroups    %s\npassword  %s   (shown once)\n", visible.String(out.Name), visible.String(strings.Join(out.Groups, ",")), out.Password)
			return err
		})
	}}
	add.Flags().StringSliceVar(&groups, "group", nil, "groups of the admin, which policies ask for")
	list := &cobra.Command{Use: "list", Short: "List the admins and their groups", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Admins []sallyport.Admin `json:"admins"`
		}
		if err := a.API(cmd.Context(), "GET", "/admins", nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			var rows [][]string
			for _, m := range out.Admins {
				rows = append(rows, []string{m.Name, strings.Join(m.Groups, ","), m.CreatedAt.Format(time.RFC3339)})
			}
			return a.Table("NAME GROUPS CREATED", rows)
		})
	}}
	set := &cobra.Command{Use: "groups NAME [GROUP…]", Short: "Set the groups of an admin (needs `sallyport login`)", Args: cobra.MinimumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return a.Did(cmd, "PUT", "/admins/"+url.PathEscape(args[0])+"/groups", map[string]any{"groups": args[1:]}, args[0]+": "+strings.Join(args[1:], ","))
	}}
	remove := &cobra.Command{Use: "remove NAME", Short: "Remove an admin; approvals that rest on it no longer hold (needs `sallyport login`)", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return a.Did(cmd, "DELETE", "/admins/"+url.PathEscape(args[0]), nil, "removed "+args[0])
	}}
	return []*cobra.Command{add, list, set, remove}
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}
