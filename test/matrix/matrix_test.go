package matrix

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/npm"
	"sallyport.dev/sallyport/test/stage"
)

var update = flag.Bool("update", false, "write docs/matrix.md anew; read the difference before you commit it")

func TestMain(m *testing.M) {
	if os.Getenv(envFixture) != "" {
		serveFixture()
		return
	}
	stage.Main(m)
}

// Every client in each of its eras uses every server, and docs/matrix.md says so.
func TestMatrix(t *testing.T) {
	n := npm.Find(t).Open(t)
	all := servers(t, n, stage.Self(t))
	g := stage.New(t)
	configs := map[string]stage.Server{}
	names := []string{}
	var steps []step
	for _, s := range all {
		configs[s.name] = s.config
		names = append(names, s.name)
		steps = append(steps, s.steps()...)
	}
	g.Write("sallyport.yaml", g.Config("limits: {rate: 100000, burst: 100000, concurrency: 512, bytes: 1GiB}\n"+stage.Servers(configs)))
	g.Start(names...)
	table := &table{eras: eras(t, g)}
	for _, c := range clients(t, n) {
		t.Run(strings.ReplaceAll(c.title, " ", "-")+"/"+c.era, func(t *testing.T) {
			g.In(t)
			var mine []step
			for _, s := range steps {
				if !c.cannot[s.Ability] {
					mine = append(mine, s)
				}
			}
			answer := args{"name": "Ann", "username": "Ann", "check": true}
			got := c.use(t, part{Era: c.era, URL: g.URL + "/mcp", Token: g.Token(""), Answer: answer, Steps: mine})
			table.add(t, c, steps, got)
		})
	}
	table.compare(t, all)
}

// eras are those that the gateway found its servers to speak.
func eras(t *testing.T, g *stage.Gateway) map[string]string {
	t.Helper()
	var out struct {
		Servers []struct{ Name, Era, Version string }
	}
	if err := json.Unmarshal([]byte(g.Must("", "servers", "list", "--json").Out), &out); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, s := range out.Servers {
		found[s.Name] = s.Era + ", " + s.Version
	}
	return found
}

// A table is what was seen.
type table struct {
	eras    map[string]string // by server
	columns []column
}

type column struct {
	client
	cells map[string]string // by server
}

// marks are the letters of what went well.
var marks = map[string]string{"list": "L", "call": "C", "resource": "R", "prompt": "P", "elicit": "E"}

// add makes a column of what a client has seen.
func (tb *table) add(t *testing.T, c client, steps []step, got []seen) {
	t.Helper()
	results := map[string]seen{}
	for _, s := range got {
		results[s.Server+" "+s.Ability] = s
	}
	col := column{c, map[string]string{}}
	for _, s := range steps {
		result, done := results[s.Server+" "+s.Ability]
		switch {
		case c.cannot[s.Ability]:
			col.cells[s.Server] += "–"
		case done && s.good(result):
			col.cells[s.Server] += marks[s.Ability]
		default:
			col.cells[s.Server] += strings.ToLower(marks[s.Ability]) + "✗"
			t.Errorf("%s: %s: %s, error %s, %.1000s", s.Server, s.Ability, s.Name, result.Error, result.Result)
		}
	}
	tb.columns = append(tb.columns, col)
}

func (s step) good(r seen) bool {
	var result struct{ IsError bool }
	return r.Error == "" && json.Unmarshal(r.Result, &result) == nil && !result.IsError && bytes.Contains(r.Result, []byte(s.want))
}

const preface = `# Clients and servers

Each client, in each era that it speaks, used each server through one gateway, and got what the server had to give. The
table is what ` + "`TestMatrix`" + ` of [test/matrix](../test/matrix/matrix_test.go) saw: it fails where it sees anything else.

L: lists tools. C: calls one. R: reads a resource. P: gets a prompt. E: a tool asks the user something in mid-call, and the
client answers. What is not there, the server does not have; –: the client cannot do it.
Modern is 2026-07-28, legacy 2025-11-25 in front; behind the gateway it is what the server was found to speak.

`

// text is the whole document.
func (tb *table) text(all []upstream) []byte {
	var b bytes.Buffer
	b.WriteString(preface + "| server | behind |")
	rule := "|---|---|"
	for _, c := range tb.columns {
		fmt.Fprintf(&b, " %s, %s |", c.title, c.era)
		rule += "---|"
	}
	b.WriteString("\n" + rule + "\n")
	for _, s := range all {
		fmt.Fprintf(&b, "| %s | %s |", s.title, tb.eras[s.name])
		for _, c := range tb.columns {
			fmt.Fprintf(&b, " %s |", c.cells[s.name])
		}
		b.WriteString("\n")
	}
	return b.Bytes()
}

func (tb *table) compare(t *testing.T, all []upstream) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "matrix.md")
	got := tb.text(all)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s says something else than was seen (write it with -update):\n%s", path, got)
	}
}
