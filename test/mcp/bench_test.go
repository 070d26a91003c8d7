package mcp

import (
	"encoding/json"
	"fmt"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/search"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/profile"
)

// BenchmarkLists measures what a list costs, whole and where searching stands for
// it, and what a search costs on the way of a call.
func BenchmarkLists(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		w := newWorld(b, setup{tools: search.Tools(), profiles: map[string]profile.Profile{
			"whole": {Names: []string{"*"}}, "search": {Names: []string{"*"}, Search: true, Above: 40},
		}})
		tools := make([]json.RawMessage, n)
		for i := range tools {
			tools[i] = fmt.Appendf(nil, `{"name":"tool_%d","description":"Does what tool %d of this server is for, with a file and a mode.","inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"the file, from the root"},"mode":{"type":"string","enum":["r","w"]}},"required":["path"]}}`, i, i)
		}
		if err := w.catalog.SetListing(b.Context(), catalog.Listing{Server: "s", Tools: tools}); err != nil {
			b.Fatal(err)
		}
		for _, in := range []string{"whole", "search"} {
			b.Run(fmt.Sprintf("tools=%d/%s", n, in), func(b *testing.B) {
				size := 0
				for b.Loop() {
					sight, err := w.gateway.List(b.Context(), "ann", in, "", 0)
					if err != nil {
						b.Fatal(err)
					}
					size = 0
					for _, t := range sight.List {
						size += len(t.Definition)
					}
				}
				b.ReportMetric(float64(size), "list-bytes")
			})
		}
		b.Run(fmt.Sprintf("tools=%d/find", n), func(b *testing.B) {
			for b.Loop() {
				_, err := w.gateway.Call(b.Context(), sallyport.Request{Credential: "ann", Profile: "search", Operation: sallyport.Operation{
					Kind: sallyport.CallTool, Target: sallyport.SearchTools, Args: json.RawMessage(`{"query":"tool 7 of the server"}`),
				}})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
