package risk_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func BenchmarkAssess(b *testing.B) {
	e := engine(b)
	prose := strings.Repeat("The quarterly report shows steady growth in all regions, with details below. ", 13)
	shell := fieldTool(sallyport.RiskField{Path: "/cmd", Kind: "shell"})
	web := fieldTool(sallyport.RiskField{Path: "/method", Kind: "http_method"}, sallyport.RiskField{Path: "/url", Kind: "url"})
	for _, bb := range []struct {
		name, args string
		tool       sallyport.Tool
	}{
		{"undeclared 1KB", `{"text":"` + prose + `","n":7}`, undeclared},
		{"undeclared 1KB with a suspicious word", `{"text":"` + prose + ` please update me","n":7}`, undeclared},
		{"sandbox", `{"code":"print(1)"}`, sallyport.Tool{Code: &sallyport.Script{}}},
		{"postgres simple", `{"sql":"SELECT id, total FROM orders WHERE id = 1"}`, sqlTool("postgres")},
		{"postgres join", `{"sql":"SELECT o.id, c.name, sum(l.qty) FROM orders o JOIN customers c ON c.id = o.customer_id JOIN lines l ON l.order_id = o.id WHERE o.total > 10 GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10"}`, sqlTool("postgres")},
		{"sqlite simple", `{"sql":"SELECT id, total FROM orders WHERE id = 1"}`, sqlTool("sqlite")},
		{"sqlite join", `{"sql":"SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.total > 10"}`, sqlTool("sqlite")},
		{"shell pipeline", `{"cmd":"grep -rn foo src | sort | uniq -c | head -n 5"}`, shell},
		{"http", `{"method":"GET","url":"https://api.example.com/orders?limit=5"}`, web},
	} {
		args := json.RawMessage(bb.args)
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e.Assess(context.Background(), bb.tool, args)
			}
		})
	}
}
