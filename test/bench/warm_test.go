package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/test/stage"
)

// refilled is how long the pool has between two calls: several times what a
// sandbox takes to start.
const refilled = 600 * time.Millisecond

// BenchmarkWarmThroughMCP calls the tools that run code as an agent does, in
// turns on a gateway whose sandboxes wait and on one that starts each cold, and
// measures from the request to the result. Of the first, only calls count whose
// receipt says that their sandbox had waited; "late" are the others.
func BenchmarkWarmThroughMCP(b *testing.B) {
	gateways := []struct {
		name string
		warm bool
		s    *mcp.ClientSession
	}{{name: "warm", warm: true}, {name: "cold"}}
	for i := range gateways {
		g := stage.New(b)
		g.Write("sallyport.yaml", g.Config(fmt.Sprintf("sandbox: {warm: %d}\nlimits: {rate: 100000, burst: 100000}\n", map[bool]int{true: 4}[gateways[i].warm])))
		g.Start()
		gateways[i].s = client(b, g.URL+"/mcp", g.Token(""))
	}
	for _, p := range []struct{ name, tool, code string }{
		{"python", "run_python", "print(1)"},
		{"shell-true", "run_shell", "true"},
		{"shell-bin-true", "run_shell", "/bin/true"},
		{"javascript", "run_javascript", "console.log(1)"},
	} {
		b.Run(p.name, func(b *testing.B) {
			took, late := map[string][]time.Duration{}, 0
			for range 3 { // the first calls of a kind are cold
				for _, g := range gateways {
					run(b, g.s, p.tool, p.code)
				}
			}
			for b.Loop() {
				for _, g := range gateways {
					time.Sleep(refilled)
					if d, warm := run(b, g.s, p.tool, p.code); warm == g.warm {
						took[g.name] = append(took[g.name], d)
					} else {
						late++
					}
				}
			}
			for name, d := range took {
				report(b, name, d)
			}
			b.ReportMetric(float64(late), "late")
			b.ReportMetric(0, "ns/op")
			b.Logf("load %s", loadNow())
		})
	}
}

func run(b *testing.B, s *mcp.ClientSession, tool, code string) (took time.Duration, warm bool) {
	at := time.Now()
	r, err := s.CallTool(b.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"code": code}})
	took = time.Since(at)
	if err != nil || r.IsError {
		b.Fatal(err, r)
	}
	out, _ := r.StructuredContent.(map[string]any)
	receipt, ok := out["receipt"].(map[string]any)
	if !ok || out["exit_code"] != 0.0 {
		b.Fatal(out)
	}
	return took, receipt["warm"] == true
}
