package cli

import (
	"encoding/json"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
)

func (a *App) reservationsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "reservations", Short: "See what idempotency remembers; settle unknown outcomes"}
	var state string
	list := &cobra.Command{Use: "list", Short: "List reservations", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Reservations []sallyport.Reservation `json:"reservations"`
		}
		if err := a.API(cmd.Context(), "GET", "/reservations?state="+url.QueryEscape(state), nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			var rows [][]string
			for _, r := range out.Reservations {
				rows = append(rows, []string{r.Principal, r.Tool, r.Key, string(r.State), r.CallID, r.UpdatedAt.Format(time.RFC3339)})
			}
			return a.Table("AGENT TOOL KEY STATE CALL UPDATED", rows)
		})
	}}
	list.Flags().StringVar(&state, "state", "", "only this state, such as unknown")
	var in struct {
		Principal string `json:"principal"`
		Tool      string `json:"tool"`
		Key       string `json:"key"`
		Call      string `json:"call,omitempty"`
		State     string `json:"state"`
		Reason    string `json:"reason"`

		Result json.RawMessage `json:"result,omitempty"`
	}
	var result string
	resolve := &cobra.Command{Use: "resolve AGENT TOOL KEY done|failed", Short: "Say how a call of unknown outcome ended", Args: cobra.ExactArgs(4), RunE: func(cmd *cobra.Command, args []string) error {
		in.Principal, in.Tool, in.Key, in.State = args[0], args[1], args[2], args[3]
		if result != "" {
			b, err := a.Argument(result)
			if err == nil {
				in.Result, err = Object(b, "contents of --result", `{"content":[{"type":"text","text":"paid"}]}`)
			}
			if err != nil {
				return err
			}
		}
		return a.Did(cmd, "POST", "/reservations/resolve", in, "resolved as "+in.State)
	}}
	resolve.Flags().StringVar(&in.Reason, "reason", "", "how you know (required)")
	resolve.Flags().StringVar(&in.Call, "call", "", "the call that you looked at, where the key was used for more than one")
	resolve.Flags().StringVar(&result, "result", "", "what a repeated call gets: the tool's result as JSON, or - for standard input")
	cmd.AddCommand(list, resolve)
	return cmd
}
