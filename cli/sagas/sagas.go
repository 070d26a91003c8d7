// Package sagas has the commands that start plans, and that see to what became of
// them.
package sagas

import (
	"cmp"
	"encoding/json"
	"fmt"
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
	sagaplan "sallyport.dev/sallyport/saga/plan"
)

// An app is the command line that the commands are part of.
type app struct{ *cli.App }

// Command is `sallyport saga`.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	cmd := &cobra.Command{Use: "saga", Short: "Run plans whose steps end done or undone, and see to them"}
	cmd.AddCommand(a.run(), a.lint(), a.status(), a.list())
	for _, v := range []struct{ verb, use, short string }{
		{"pause", "pause SAGA", "Let no further step begin"},
		{"resume", "resume SAGA", "Go on with a paused saga"},
		{"cancel", "cancel SAGA", "Undo what is done, the last step first"},
		{"retry", "retry SAGA", "Send on a saga that is parked or whose undo failed"},
		{"skip", "skip SAGA STEP", "Leave out the step, or undo, that stands in the way"},
		{"resolve", "resolve SAGA STEP done|failed", "Say how a step of unknown outcome ended"},
	} {
		cmd.AddCommand(a.change(v.verb, v.use, v.short))
	}
	return cmd
}

// planArgs are the arguments of saga_run for FILE|NAME.
func (a app) planArgs(plan, inputs string) (json.RawMessage, error) {
	in := map[string]json.RawMessage{}
	switch ext := filepath.Ext(plan); {
	case plan == "-" || ext == ".yaml" || ext == ".yml" || ext == ".json" || strings.ContainsRune(plan, filepath.Separator):
		text, err := a.Argument("-")
		if plan != "-" {
			text, err = os.ReadFile(plan)
		}
		if err != nil {
			return nil, err
		}
		if in["plan"], err = sagaplan.JSON(plan, text); err != nil {
			return nil, err
		}
	default:
		name, err := json.Marshal(plan)
		if err != nil {
			return nil, err
		}
		in["name"] = name
	}
	if inputs != "" {
		b, err := a.Argument(inputs)
		if err != nil {
			return nil, err
		}
		if in["inputs"], err = cli.Object(b, "inputs", `{"host":"a"}`); err != nil {
			return nil, err
		}
	}
	return json.Marshal(in)
}

func (a app) run() *cobra.Command {
	var c adminapi.Call
	var inputs string
	var approval, wait time.Duration
	cmd := &cobra.Command{
		Use: "run FILE|NAME|-", Short: "Start a plan as an agent", Args: cobra.ExactArgs(1),
		Long:    "Start a plan as an agent: a YAML or JSON file, - for standard input, or the name of one in the folder sagas.plans.",
		Example: "  sallyport saga run deploy.yaml --inputs '{\"host\":\"a\"}' --wait 1m",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			c.Tool, c.Wait = sagaplan.ToolRun, approval.Seconds()
			if c.Args, err = a.planArgs(args[0], inputs); err != nil {
				return err
			}
			if c.Agent, err = a.AgentOr(c.Agent); err != nil {
				return err
			}
			var res adminapi.CallResult
			if err := a.API(cmd.Context(), "POST", "/calls", c, &res); err != nil {
				return err
			}
			var started struct {
				Structured struct {
					ID string `json:"id"`
				} `json:"structuredContent"`
			}
			if err := json.Unmarshal(res.Result, &started); err != nil || started.Structured.ID == "" || res.IsError {
				return fmt.Errorf("the saga was not started: %.300s", res.Result)
			}
			return a.follow(cmd, started.Structured.ID, wait)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Agent, "agent", "", "agent to run it as (default: the one that init made)")
	f.StringVar(&c.Key, "key", "", "idempotency key: the same key and plan never start twice")
	f.StringVar(&c.Ticket, "ticket", "", "start the plan that this ticket approved")
	f.StringVar(&c.Profile, "profile", "", "profile to call through")
	f.StringVar(&inputs, "inputs", "", "JSON object that the plan's inputs come from; - reads standard input")
	f.DurationVar(&approval, "approval-wait", 0, "how long to wait for a human, such as 5m")
	f.DurationVar(&wait, "wait", 0, "how long to wait for the end, such as 1m")
	return cmd
}

// follow shows a saga, once it rests or the time is up. The exit status is
// that of a tool: it failed unless it succeeded, or still goes on.
func (a app) follow(cmd *cobra.Command, id string, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	var s sallyport.Saga
	for {
		if err := a.API(cmd.Context(), "GET", "/sagas/"+url.PathEscape(id), nil, &s); err != nil {
			return cli.Elsewhere(err, "sallyport saga list")
		}
		goesOn := s.State == sallyport.SagaRunning || s.State == sallyport.SagaCompensating
		if !goesOn || !time.Now().Before(deadline) {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		}
	}
	if err := a.Show(s, func() error { return a.show(s) }); err != nil {
		return err
	}
	switch s.State {
	case sallyport.SagaCompensated, sallyport.SagaCancelled, sallyport.SagaUndoFailed, sallyport.SagaParked:
		return cli.Exit(cli.ExitTool)
	case sallyport.SagaAwaiting:
		return cli.Exit(cli.ExitPending)
	default:
		return nil
	}
}

func (a app) show(s sallyport.Saga) error {
	say := func(label, text string) {
		if text != "" {
			fmt.Fprintf(a.Out, "  %-10s %s\n", label, visible.String(text))
		}
	}
	fmt.Fprintf(a.Out, "saga %s: %s\n", visible.String(s.ID), s.State)
	say("plan", strings.TrimSpace(s.Name+" "+s.Version))
	say("agent", s.Principal)
	say("why", s.Reason)
	if s.Failure != s.Reason {
		say("failure", s.Failure)
	}
	say("approved", s.Ticket)
	say("digest", s.Digest)
	for _, w := range s.Warnings {
		say("warning", w)
	}
	var rows [][]string
	for _, st := range s.Steps {
		undo := "none"
		if st.Undo != nil {
			undo = st.Undo.Tool
		}
		rows = append(rows, []string{st.ID, st.Do.Tool, string(st.State), undo, ""})
		for _, t := range st.Attempts {
			way := "do"
			if t.Undo {
				way = "undo"
			}
			rows = append(rows, []string{"", fmt.Sprintf("%s %d", way, t.N), cmp.Or(string(t.Outcome), "on its way"), cmp.Or(t.CallID, "-"), cmp.Or(t.Message, t.Ticket)})
		}
	}
	return a.Table("STEP TOOL STATE UNDO-OR-CALL MESSAGE", rows)
}

func (a app) status() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{Use: "status SAGA", Short: "Show a saga with every step and attempt", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		err := a.follow(cmd, args[0], wait)
		if _, shown := err.(cli.Exit); shown { //nolint:errorlint // ours, never wrapped
			return nil // it was asked how it stands, not whether that is well
		}
		return err
	}}
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for the end, such as 1m")
	return cmd
}

func (a app) list() *cobra.Command {
	var state string
	cmd := &cobra.Command{Use: "list", Short: "List sagas", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Sagas []sallyport.Saga `json:"sagas"`
		}
		if err := a.API(cmd.Context(), "GET", "/sagas?state="+url.QueryEscape(state), nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			var rows [][]string
			for _, s := range out.Sagas {
				rows = append(rows, []string{s.ID, string(s.State), s.Principal, s.Name, s.UpdatedAt.Format(time.RFC3339), s.Reason})
			}
			return a.Table("SAGA STATE AGENT PLAN UPDATED WHY", rows)
		})
	}}
	cmd.Flags().StringVar(&state, "state", "", "only this state, such as parked")
	return cmd
}

func (a app) lint() *cobra.Command {
	var inputs string
	cmd := &cobra.Command{Use: "lint FILE|NAME|-", Short: "Judge a plan without starting it", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		in, err := a.planArgs(args[0], inputs)
		if err != nil {
			return err
		}
		var r adminapi.PlanReport
		if err := a.API(cmd.Context(), "POST", "/sagas/lint", in, &r); err != nil {
			return err
		}
		if err := a.Show(r, func() error { return a.showPlan(r) }); err != nil || len(r.Errors) == 0 {
			return err
		}
		return cli.Exit(cli.ExitTool)
	}}
	cmd.Flags().StringVar(&inputs, "inputs", "", "JSON object that the plan's inputs come from; - reads standard input")
	return cmd
}

func (a app) showPlan(r adminapi.PlanReport) error {
	undone := ""
	if r.Risk.Irreversible {
		undone = ", cannot be undone"
	}
	fmt.Fprintf(a.Out, "plan %s: risk %s%s\n", visible.String(r.Name), r.Risk.Level, undone)
	for _, s := range r.Risk.Reasons {
		fmt.Fprintf(a.Out, "  ! %s\n", visible.String(s))
	}
	for _, s := range r.Errors {
		fmt.Fprintf(a.Out, "error: %s\n", visible.String(s))
	}
	for _, s := range r.Warnings {
		fmt.Fprintf(a.Out, "warning: %s\n", visible.String(s))
	}
	fmt.Fprintf(a.Out, "digest %s\n", r.Digest)
	return nil
}

func (a app) change(verb, use, short string) *cobra.Command {
	var in struct {
		Step    string `json:"step,omitempty"`
		Outcome string `json:"outcome,omitempty"`
		Attempt int    `json:"attempt,omitempty"`
		Reason  string `json:"reason,omitempty"`
	}
	n := len(strings.Fields(use)) - 1
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(n), RunE: func(cmd *cobra.Command, args []string) error {
		if n > 1 {
			in.Step = args[1]
		}
		if n > 2 {
			in.Outcome = args[2]
		}
		var s sallyport.Saga
		if err := a.API(cmd.Context(), "POST", "/sagas/"+url.PathEscape(args[0])+"/"+verb, in, &s); err != nil {
			return cli.Elsewhere(err, "sallyport saga list")
		}
		return a.Show(s, func() error { _, err := fmt.Fprintf(a.Out, "saga %s: %s\n", visible.String(s.ID), s.State); return err })
	}}
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the record")
	if verb == "resolve" {
		cmd.Flags().IntVar(&in.Attempt, "attempt", 0, "the attempt that you looked at, where there was more than one in this direction")
	}
	return cmd
}
