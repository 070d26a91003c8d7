package policies

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/redact/visible"
	"sallyport.dev/sallyport/risk"
	"sallyport.dev/sallyport/tier/choose"
)

// An outcome is how one row of a table came out.
type outcome struct {
	Line   int      `json:"line"`
	Name   string   `json:"name"`
	Want   string   `json:"want"`
	Got    string   `json:"got"`
	OK     bool     `json:"ok"`
	Why    []string `json:"why"` // reasons, policies and what the call would do
	Policy []string `json:"policies"`
}

func (a app) test() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "test FILE…", Short: "Hold tables of calls against the policies: who, which tool, allowed, denied or to be approved; works offline",
		Long: "Hold tables of calls against the policies of the data folder, with its tools' manifests. Without a gateway, nobody is tainted, " +
			"nothing has been summed up, and a tool without a manifest is taken for an undeclared one of a server. " +
			"Ends with 1 if a call comes out otherwise than the table says.",
		Example: "  cases:\n" +
			"    - {agent: reporter, roles: [agent], tool: run_python, args: {code: print(1)}, expect: allow}\n" +
			"    - {agent: reporter, roles: [agent], tool: db__run_sql, args: {sql: DROP TABLE orders}, expect: approval}",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if dir == "" {
				dir = filepath.Join(a.Data, "policies")
			}
			b, err := a.bench(dir)
			if err != nil {
				return err
			}
			all, failed := map[string][]outcome{}, 0
			for _, f := range files {
				src, err := os.ReadFile(f)
				if err != nil {
					return err
				}
				rows, err := parseTable(f, src)
				if err != nil {
					return err
				}
				for _, r := range rows {
					o := b.run(cmd.Context(), r)
					if all[f] = append(all[f], o); !o.OK {
						failed++
					}
				}
			}
			return a.report(files, all, failed)
		},
	}
	cmd.Flags().StringVar(&dir, "policies", "", "folder of policies (default: that of the data folder)")
	return cmd
}

func (a app) report(files []string, all map[string][]outcome, failed int) error {
	total := 0
	for _, list := range all {
		total += len(list)
	}
	err := a.Show(map[string]any{"files": all, "passed": total - failed, "failed": failed}, func() error {
		for _, f := range files {
			for _, o := range all[f] {
				if o.OK {
					continue
				}
				fmt.Fprintf(a.Out, "%s:%d: %s: expected %s, got %s\n", visible.String(f), o.Line, visible.String(o.Name), o.Want, o.Got)
				for _, w := range o.Why {
					fmt.Fprintf(a.Out, "    %s\n", visible.String(w))
				}
			}
		}
		_, err := fmt.Fprintf(a.Out, "%d passed, %d failed\n", total-failed, failed)
		return err
	})
	if err == nil && failed > 0 {
		return cli.Exit(cli.ExitTool)
	}
	return err
}

// A bench is what calls are held against.
type bench struct {
	policies *cedar.Engine
	risk     *risk.Engine
	tools    map[string]sallyport.Tool
}

func (a app) bench(dir string) (b bench, err error) {
	if b.policies, err = cedar.Load(dir); err != nil {
		return b, err
	}
	if b.tools, err = a.Described(); err != nil {
		return b, err
	}
	b.risk, err = risk.New(risk.Options{CacheDir: cli.CacheDir(), Internal: a.InternalDomains()})
	return b, err
}

// run decides one call as the path would: what it may see, what it would do,
// what policies say.
func (b bench) run(ctx context.Context, r row) outcome {
	o := outcome{Line: r.line, Name: r.name, Want: r.expect, Policy: []string{}}
	tool, known := b.tools[r.tool]
	if !known {
		server, name, _ := strings.Cut(r.tool, "__")
		tool = sallyport.Tool{Name: r.tool, Version: "1.0.0", Origin: sallyport.Origin{Backend: "upstream", Server: server, Name: name}}
		o.Why = append(o.Why, "no manifest describes "+r.tool+": its arguments are judged as those of an undeclared tool")
	}
	tool.Status = sallyport.ToolActive
	q := gateway.Question{
		Who:     sallyport.Principal{Tenant: sallyport.DefaultTenant, ID: r.agent, Roles: r.roles},
		Profile: r.profile, Action: gateway.ActionList, Tool: tool,
	}
	v, err := b.policies.Authorize(q)
	if err == nil && v.Allow {
		q.Action, q.Args, q.Tier = gateway.ActionCall, r.args, tierOf(tool, r)
		q.Risk = b.risk.Assess(ctx, tool, r.args)
		q.Tainted = r.tainted
		o.Why = append(o.Why, "the call: "+strings.Join(append([]string{q.Risk.Level.String()}, q.Risk.Reasons...), "; "))
		v, err = b.policies.Authorize(q)
	} else if err == nil {
		o.Why = append(o.Why, r.agent+" does not even see "+r.tool)
	}
	o.Policy = append(o.Policy, v.Policies...)
	switch {
	case err != nil:
		o.Got, o.Why = deny, append(o.Why, err.Error())
	case !v.Allow:
		o.Got, o.Why = deny, append(o.Why, v.Reasons...)
	case len(v.Demands) > 0 || q.Risk.Irreversible || q.Risk.Level >= sallyport.Critical:
		o.Got = approval
		for _, d := range v.Demands {
			o.Why = append(o.Why, "needs "+d.String())
		}
	default:
		o.Got = allow
	}
	if len(v.Policies) > 0 {
		o.Why = append(o.Why, "policies: "+strings.Join(v.Policies, ", "))
	}
	o.OK = o.Got == o.Want
	return o
}

// tierOf is where the call would run, where all tiers can be had.
func tierOf(t sallyport.Tool, r row) string {
	c, _ := choose.Of(t, r.args, nil)
	return c.Tier
}
