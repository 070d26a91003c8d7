package bench

import (
	"fmt"
	"net"
	"net/http"
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
	at := listen(b)
	gateways := []struct {
		name string
		warm bool
		s    *mcp.ClientSession
	}{{name: "warm", warm: true}, {name: "cold"}}
	for i := range gateways {
		g := stage.New(b)
		g.Write("sallyport.yaml", g.Config(fmt.Sprintf("sandbox: {warm: %d}\negress: {private: [127.0.0.0/8]}\nlimits: {rate: 100000, burst: 100000}\n", map[bool]int{true: 4}[gateways[i].warm])))
		g.Write("tools/reach.yaml", fmt.Sprintf(reach, "reach", at, "print(1)"))
		g.Write("tools/fetch.yaml", fmt.Sprintf(reach, "fetch", at, fmt.Sprintf("import urllib.request; print(urllib.request.urlopen('http://%s/').read())", at)))
		g.Start()
		gateways[i].s = client(b, g.URL+"/mcp", g.Token(""))
	}
	code := func(text string) map[string]any { return map[string]any{"code": text} }
	for _, p := range []struct {
		name, tool string
		args       map[string]any
	}{
		{"python", "run_python", code("print(1)")},
		{"shell-true", "run_shell", code("true")},
		{"shell-bin-true", "run_shell", code("/bin/true")},
		{"javascript", "run_javascript", code("console.log(1)")},
		{"egress", "reach", map[string]any{}},       // it has a way out, and does not take it
		{"egress-fetch", "fetch", map[string]any{}}, // one request to a server of this machine
	} {
		b.Run(p.name, func(b *testing.B) {
			took, late := map[string][]time.Duration{}, 0
			for range 3 { // the first calls of a kind are cold
				for _, g := range gateways {
					run(b, g.s, p.tool, p.args)
				}
			}
			for b.Loop() {
				for _, g := range gateways {
					time.Sleep(refilled)
					if d, warm := run(b, g.s, p.tool, p.args); warm == g.warm {
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

// reach is a tool that may reach one server.
const reach = `
name: %s
description: Reaches a server of this machine, as tools do that bring what they need along.
input_schema: {type: object, additionalProperties: false}
language: python
egress: [%q]
code: |
  %s
`

// listen starts a server at an address that no sandbox takes for its own.
func listen(b *testing.B) (at string) {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		b.Fatal(err)
	}
	hello := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }
	s := &http.Server{Handler: http.HandlerFunc(hello), ReadHeaderTimeout: time.Minute}
	b.Cleanup(func() { s.Close() })
	go s.Serve(l) //nolint:errcheck // ends with Close
	return l.Addr().String()
}

func run(b *testing.B, s *mcp.ClientSession, tool string, args map[string]any) (took time.Duration, warm bool) {
	at := time.Now()
	r, err := s.CallTool(b.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
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
