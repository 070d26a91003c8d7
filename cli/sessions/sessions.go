// Package sessions are the commands about sandboxes that agents keep between
// calls: their files, and the output of what runs in their background.
package sessions

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/redact/visible"
)

// An app is the command line that the commands are part of.
type app struct{ *cli.App }

// Commands are those of this package, for `sallyport sandbox`.
func Commands(c *cli.App) []*cobra.Command {
	a := app{c}
	return []*cobra.Command{a.list(), a.files(), a.logs(), a.fork(), a.end()}
}

// A whose says whose sessions a command is about.
type whose struct{ agent, profile, ticket string }

func (w *whose) flags(cmd *cobra.Command) *cobra.Command {
	f := cmd.Flags()
	f.StringVar(&w.agent, "agent", "", "agent whose session it is (default: the one that init made)")
	f.StringVar(&w.profile, "profile", "", "profile that the session was made through")
	f.StringVar(&w.ticket, "ticket", "", "ticket that approved it, where a policy wants one")
	return cmd
}

// call calls the tool that looks after sessions, as the agent. out gets
// its structured result.
func (a app) call(cmd *cobra.Command, w *whose, args map[string]any, out any) error {
	var err error
	if w.agent, err = a.AgentOr(w.agent); err != nil {
		return err
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	var res adminapi.CallResult
	c := adminapi.Call{Agent: w.agent, Tool: sallyport.FilesTool, Args: raw, Profile: w.profile, Ticket: w.ticket}
	if err := a.API(cmd.Context(), "POST", "/calls", c, &res); err != nil {
		return err
	}
	var body struct {
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	if err := json.Unmarshal(res.Result, &body); err != nil {
		return err
	}
	return json.Unmarshal(body.StructuredContent, out)
}

func (a app) list() *cobra.Command {
	var w whose
	return w.flags(&cobra.Command{Use: "sessions", Short: "List the sessions of an agent", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Sessions []struct {
				Session   string    `json:"session"`
				SandboxID string    `json:"sandbox_id"`
				Since     time.Time `json:"since"`
				Used      time.Time `json:"used"`
				Jobs      int       `json:"jobs"`
				Frozen    bool      `json:"frozen"`
			} `json:"sessions"`
		}
		if err := a.call(cmd, &w, map[string]any{"action": "list"}, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			var rows [][]string
			for _, s := range out.Sessions {
				state := "awake"
				if s.Frozen {
					state = "frozen"
				}
				rows = append(rows, []string{s.Session, state, fmt.Sprint(s.Jobs), time.Since(s.Since).Round(time.Second).String(), time.Since(s.Used).Round(time.Second).String()})
			}
			return a.Table("SESSION STATE JOBS AGE UNUSED", rows)
		})
	}})
}

func (a app) end() *cobra.Command {
	var w whose
	return w.flags(&cobra.Command{Use: "end SESSION", Short: "End a session with all that it holds", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		var out map[string]any
		if err := a.call(cmd, &w, map[string]any{"action": "end", "session": args[0]}, &out); err != nil {
			return err
		}
		return a.Show(out, func() error { return nil })
	}})
}

func (a app) fork() *cobra.Command {
	var w whose
	return w.flags(&cobra.Command{
		Use: "fork SESSION NAME…", Short: "Copy a session of tier microvm as it is, with all that its programs hold in memory", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var out struct {
				Forked   string   `json:"forked"`
				Siblings []string `json:"siblings"`
				PausedMS float64  `json:"paused_ms"`
			}
			if err := a.call(cmd, &w, map[string]any{"action": "fork", "session": args[0], "names": args[1:]}, &out); err != nil {
				return err
			}
			return a.Show(out, func() error {
				fmt.Fprintf(cmd.OutOrStdout(), "copied to %s; %s was held for %.0f ms, and goes on\n", strings.Join(out.Siblings, ", "), out.Forked, out.PausedMS)
				return nil
			})
		},
	})
}

// logs prints what a background job has written so far.
func (a app) logs() *cobra.Command {
	var w whose
	var job uint32
	var offset int64
	cmd := &cobra.Command{
		Use: "logs SESSION", Short: "Print what a background job of a session wrote", Args: cobra.ExactArgs(1),
		Long: "Print what a background job of a session wrote, from an offset on. The next offset, and how the job is, go to standard error.",
		RunE: func(cmd *cobra.Command, args []string) error {
			for {
				var out struct {
					Job       uint32 `json:"job"`
					Output    string `json:"output"`
					Encoding  string `json:"encoding,omitempty"`
					Next      int64  `json:"next"`
					More      bool   `json:"more"`
					Running   bool   `json:"running"`
					ExitCode  *int   `json:"exit_code,omitempty"`
					Signal    string `json:"signal,omitempty"`
					Truncated bool   `json:"truncated"`
				}
				if err := a.call(cmd, &w, map[string]any{"action": "output", "session": args[0], "job": job, "offset": offset}, &out); err != nil {
					return err
				}
				if a.JSON {
					return a.Show(out, nil)
				}
				b := []byte(out.Output)
				if out.Encoding == "base64" {
					var err error
					if b, err = base64.StdEncoding.DecodeString(out.Output); err != nil {
						return err
					}
				}
				text, _ := visible.Text(string(b))
				if _, err := io.WriteString(a.Out, text); err != nil {
					return err
				}
				if offset = out.Next; out.More {
					continue
				}
				state := "running"
				if out.ExitCode != nil {
					state = strings.TrimSpace(fmt.Sprintf("ended with %d %s", *out.ExitCode, visible.String(out.Signal)))
				}
				_, err := fmt.Fprintf(a.Err, "[job %d %s; next offset %d]\n", out.Job, state, out.Next)
				return err
			}
		},
	}
	cmd.Flags().Uint32Var(&job, "job", 1, "number of the job")
	cmd.Flags().Int64Var(&offset, "offset", 0, "byte to begin at")
	return w.flags(cmd)
}

func (a app) files() *cobra.Command {
	cmd := &cobra.Command{Use: "files", Short: "Move files into and out of a session"}
	cmd.AddCommand(a.put(), a.get(), a.folder())
	return cmd
}

func (w *whose) path(session, file string) string {
	q := url.Values{"agent": {w.agent}, "path": {file}}
	for name, v := range map[string]string{"profile": w.profile, "ticket": w.ticket} {
		if v != "" {
			q.Set(name, v)
		}
	}
	return "/sessions/" + url.PathEscape(session) + "/file?" + q.Encode()
}

func (a app) put() *cobra.Command {
	var w whose
	return w.flags(&cobra.Command{
		Use: "put SESSION FILE|- PATH", Short: "Store a file in a session, under PATH of its working folder", Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if w.agent, err = a.AgentOr(w.agent); err != nil {
				return err
			}
			from, size := a.In, int64(-1)
			if args[1] != "-" {
				f, err := os.Open(args[1])
				if err != nil {
					return err
				}
				defer f.Close()
				info, err := f.Stat()
				if err != nil {
					return err
				}
				if !info.Mode().IsRegular() {
					return &sallyport.Error{Code: sallyport.Invalid, Message: args[1] + " is not a file", Hint: "no folder is moved as a whole: make an archive of it, and unpack that in the session"}
				}
				from, size = f, info.Size()
			}
			resp, err := a.Stream(cmd.Context(), http.MethodPut, w.path(args[0], args[2]), from, size)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				return err
			}
			return a.Show(json.RawMessage(b), func() error { return nil })
		},
	})
}

func (a app) get() *cobra.Command {
	var w whose
	return w.flags(&cobra.Command{
		Use: "get SESSION PATH FILE|-", Short: "Copy a file of a session here", Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if w.agent, err = a.AgentOr(w.agent); err != nil {
				return err
			}
			resp, err := a.Stream(cmd.Context(), http.MethodGet, w.path(args[0], args[1]), nil, 0)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if args[2] == "-" {
				_, err = io.Copy(a.Out, resp.Body)
				return err
			}
			return save(args[2], resp.Body)
		},
	})
}

// save writes a file that is there when it is whole, and not before.
func save(name string, from io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".sallyport-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, from)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s was not written: %w", name, err)
	}
	return os.Rename(f.Name(), name)
}

func (a app) folder() *cobra.Command {
	var w whose
	return w.flags(&cobra.Command{Use: "list SESSION [PATH]", Short: "List a folder of a session", Args: cobra.RangeArgs(1, 2), RunE: func(cmd *cobra.Command, args []string) error {
		var out struct {
			Files []struct {
				Name string    `json:"name"`
				Kind string    `json:"kind"`
				Size int64     `json:"size"`
				Time time.Time `json:"time"`
				Raw  string    `json:"name_base64,omitempty"`
			} `json:"files"`
			More bool `json:"more"`
		}
		what := map[string]any{"action": "files", "session": args[0]}
		if len(args) == 2 {
			what["path"] = args[1]
		}
		if err := a.call(cmd, &w, what, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			var rows [][]string
			for _, f := range out.Files {
				rows = append(rows, []string{f.Kind, fmt.Sprint(f.Size), f.Time.Format(time.RFC3339), visible.String(f.Name)})
			}
			if out.More {
				rows = append(rows, []string{"", "", "", "… and more"})
			}
			return a.Table("KIND SIZE TIME NAME", rows)
		})
	}})
}
