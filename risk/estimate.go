package risk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/pgsql"
)

// Explain implements gateway.Estimator. It wants one declared argument of SQL
// that is one statement of PostgreSQL's dialect, which to plan is proven to
// change nothing: of other databases, none tells beforehand without risk.
func (e *Engine) Explain(ctx context.Context, tool sallyport.Tool, args json.RawMessage) (query string, err error) {
	var sql []sallyport.RiskField
	for _, f := range tool.Manifest.Fields {
		if _, there := sallyport.At(args, f.Path); f.Kind == "sql" && (there || strings.Contains(f.Path, "*")) {
			sql = append(sql, f)
		}
	}
	if len(sql) != 1 {
		return "", fmt.Errorf("the call has %d arguments of SQL, and it must be one", len(sql))
	}
	if d := strings.ToLower(sql[0].Dialect); d != "postgres" && d != "postgresql" {
		return "", fmt.Errorf("only PostgreSQL is asked for it, and the SQL is for %q", d)
	}
	var text string
	if v, _ := sallyport.At(args, sql[0].Path); json.Unmarshal(v, &text) != nil {
		return "", fmt.Errorf("%s is not one text", sql[0].Path)
	}
	query, ok := e.postgres.ExplainQuery(ctx, text)
	if !ok {
		return "", errors.New("the SQL is not one SELECT, INSERT, UPDATE or DELETE, or to plan it could act already")
	}
	return query, nil
}

// Limits of a search for an estimate.
const (
	maxAnswer      = 1 << 20 // bytes
	maxAnswerDepth = 12      // levels, those within texts counted
)

// Rows implements gateway.Estimator. Servers wrap a plan as they like: it is
// found within rows, objects and texts, and must be the only one.
func (e *Engine) Rows(answer json.RawMessage) (int64, bool) {
	if len(answer) > maxAnswer {
		return 0, false
	}
	found := plans(answer, maxAnswerDepth)
	slices.Sort(found)
	found = slices.Compact(found) // a structured result is told twice
	if len(found) != 1 {
		return 0, false
	}
	return found[0], true
}

func plans(v json.RawMessage, depth int) (found []int64) {
	var text string
	var items []json.RawMessage
	var members map[string]json.RawMessage
	switch {
	case depth == 0:
	case json.Unmarshal(v, &text) == nil:
		if t := strings.TrimSpace(text); strings.HasPrefix(t, "[") || strings.HasPrefix(t, "{") {
			found = plans(json.RawMessage(t), depth-1)
		}
	case json.Unmarshal(v, &items) == nil:
		if n, ok := pgsql.EstimatedRows(v); ok {
			return []int64{n}
		}
		for _, item := range items {
			found = append(found, plans(item, depth-1)...)
		}
	case json.Unmarshal(v, &members) == nil:
		for _, m := range members {
			found = append(found, plans(m, depth-1)...)
		}
	}
	return found
}
