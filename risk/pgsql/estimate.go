package pgsql

import (
	"context"
	"encoding/json"

	"sallyport.dev/sallyport"
)

// ExplainQuery returns the query that has PostgreSQL estimate how many rows a
// text would touch, without running it. It reports false unless the text is a
// single DELETE, UPDATE, INSERT or SELECT, and the query is proven to change
// nothing: planning evaluates functions.
func (p *Parser) ExplainQuery(ctx context.Context, text string) (query string, ok bool) {
	j := p.Judge(ctx, text)
	if !j.Parsed || len(j.Kinds) != 1 {
		return "", false
	}
	switch j.Kinds[0] {
	case "DeleteStmt", "UpdateStmt", "InsertStmt", "SelectStmt":
	default:
		return "", false
	}
	query = "EXPLAIN (FORMAT JSON) " + text
	e := p.Judge(ctx, query)
	return query, e.Parsed && len(e.Kinds) == 1 && e.Kinds[0] == "ExplainStmt" && e.Risk.Level == sallyport.Low
}

// EstimatedRows reads the answer to an ExplainQuery: the rows that the plan
// changes, or returns if it changes none.
func EstimatedRows(plan []byte) (rows int64, ok bool) {
	type node struct {
		Kind  string  `json:"Node Type"`
		Rows  float64 `json:"Plan Rows"`
		Below []struct {
			Rows float64 `json:"Plan Rows"`
		} `json:"Plans"`
	}
	var answer []struct {
		Plan *node `json:"Plan"`
	}
	if json.Unmarshal(plan, &answer) != nil || len(answer) != 1 || answer[0].Plan == nil || answer[0].Plan.Kind == "" {
		return 0, false
	}
	n := answer[0].Plan
	if n.Kind == "ModifyTable" && len(n.Below) > 0 {
		total := 0.0
		for _, b := range n.Below {
			total += b.Rows
		}
		return whole(total)
	}
	return whole(n.Rows)
}

// whole refuses what no planner would say.
func whole(rows float64) (int64, bool) { return int64(rows), rows >= 0 && rows < 1<<62 }
