package cli

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func (a *App) secretsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "secrets", Short: "Set, list and remove secrets; values are never shown"}
	cmd.AddCommand(
		&cobra.Command{Use: "set NAME", Short: "Set a secret; the value is read from standard input", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			value, err := a.Argument("-")
			if err != nil {
				return err
			}
			v := strings.TrimSuffix(string(value), "\n")
			if v == "" {
				return errors.New("the value is empty: pipe it in, as in printf %s \"$VALUE\" | sallyport secrets set NAME")
			}
			return a.Did(cmd, "PUT", "/secrets/"+url.PathEscape(args[0]), map[string]string{"value": v}, "set "+args[0])
		}},
		&cobra.Command{Use: "list", Short: "List the names", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			var out struct {
				Names []string `json:"names"`
			}
			if err := a.API(cmd.Context(), "GET", "/secrets", nil, &out); err != nil {
				return err
			}
			return a.Show(out, func() error {
				for _, n := range out.Names {
					fmt.Fprintln(a.Out, n)
				}
				return nil
			})
		}},
		&cobra.Command{Use: "rm NAME", Short: "Remove a secret", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return a.Did(cmd, "DELETE", "/secrets/"+url.PathEscape(args[0]), nil, "removed "+args[0])
		}},
	)
	return cmd
}
