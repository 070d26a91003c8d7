package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/fake"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/limit"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/risk"
)

// quiet leaves out what is measured apart: the record and the sanitiser.
type quiet struct{}

func (quiet) Append(sallyport.Entry) error { return nil }
func (quiet) Healthy() error               { return nil }
func (quiet) Result(_ string, _ sallyport.Tool, out sallyport.Output) (json.RawMessage, bool, []string, error) {
	return out.Content, out.IsError, nil, nil
}
func (quiet) Stream(string) func([]byte) string                    { return func(b []byte) string { return string(b) } }
func (quiet) Notice(_ string, n sallyport.Notice) sallyport.Notice { return n }
func (quiet) JSON(v json.RawMessage) json.RawMessage               { return v }
func (quiet) Text(s string) string                                 { return s }

// agents are any number of agents, each active.
type agents struct{}

func (agents) Agent(_ context.Context, tenant, id string) (sallyport.Agent, error) {
	return sallyport.Agent{Tenant: tenant, ID: id, Roles: []string{"agent"}, State: "active"}, nil
}

// BenchmarkPath is a read-only call of 1 KB along the whole path with the real
// engines, on a catalogue of so many tools; the backend does nothing.
func BenchmarkPath(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("tools=%d", n), func(b *testing.B) {
			g, token := path(b, n)
			args, err := json.Marshal(map[string]string{"text": strings.Repeat("one kilobyte of text. ", 45)})
			if err != nil {
				b.Fatal(err)
			}
			req := sallyport.Request{Credential: token, Door: "bench", Size: len(args),
				Operation: sallyport.Operation{Kind: sallyport.CallTool, Target: fmt.Sprintf("tool_%d", n/2), Args: args}}
			b.ReportAllocs()
			before := processor(b)
			for b.Loop() {
				if _, err := g.Call(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((processor(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// processor is the CPU time of this process, collection of garbage included: a busy
// machine changes it less than the time on the wall.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func path(b *testing.B, n int) (*gateway.Gateway, string) {
	dir := b.TempDir()
	check := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	keys, err := oauth.CreateKeys(dir)
	check(err)
	c := oauth.Config{Issuer: "http://gw", Resources: []string{"http://gw/mcp"}, Keys: keys, Agents: oauth.NewAgentCache(agents{}, time.Hour, nil)}
	issuer, err := oauth.NewServer(c)
	check(err)
	verifier, err := oauth.NewVerifier(c)
	check(err)
	audience, err := verifier.For("http://gw/mcp")
	check(err)
	agent, err := agents{}.Agent(b.Context(), sallyport.DefaultTenant, "a")
	check(err)
	token, err := issuer.Issue(b.Context(), agent, "", "")
	check(err)
	policies := b.TempDir()
	_, err = cedar.WriteStarter(policies)
	check(err)
	engine, err := cedar.Load(policies)
	check(err)
	var tools []sallyport.Tool
	for i := range n {
		tools = append(tools, sallyport.Tool{Name: fmt.Sprintf("tool_%d", i), Origin: sallyport.Origin{Backend: "fake", Server: "echo"}, Manifest: sallyport.Manifest{ReadOnly: true},
			InputSchema: []byte(`{"type":"object","properties":{"text":{"type":"string","maxLength":4096}},"required":["text"],"additionalProperties":false}`)})
	}
	all, err := catalog.New(catalog.Options{Builtins: tools})
	check(err)
	judge, err := risk.New(risk.Options{})
	check(err)
	check(judge.Warm(b.Context())) // the first call would do it otherwise, and be counted for a second
	return &gateway.Gateway{
		Authenticator: oauth.Profiles{"": audience}, Limiter: limit.New(limit.Config{Rate: 1e9, Burst: 1e9, Bytes: 1 << 40}), Catalog: all, Assessor: judge,
		Authorizer: engine, Sanitiser: quiet{}, Journal: quiet{},
		Backends: map[string]sallyport.Backend{"fake": fake.New(func(context.Context, sallyport.Job) (sallyport.Output, error) {
			return sallyport.Output{Content: json.RawMessage(`{"content":[]}`)}, nil
		})},
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}, token.Value
}
