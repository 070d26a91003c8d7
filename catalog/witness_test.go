package catalog

import (
	"strings"
	"testing"
)

func TestWitnessInManifest(t *testing.T) {
	const head = "server: db\ntool: drop\n"
	m, err := ParseManifest("t.yaml", []byte(head+`witness:
  - name: rows
    tool: db__count
    arguments: {table: {$arg: /table}, exact: true, limit: 9007199254740993}
    select: /structuredContent/rows
    binds: /table
  - {name: size, tool: db__size}
fields:
  - {path: /table, kind: reference}
`))
	if err != nil {
		t.Fatal(err)
	}
	w := m.Rules.Witness
	if len(w) != 2 || w[0].Tool != "db__count" || w[0].Select != "/structuredContent/rows" || w[0].Binds != "/table" ||
		!strings.Contains(string(w[0].Args), `9007199254740993`) || !strings.Contains(string(w[0].Args), `{"$arg":"/table"}`) || w[1].Name != "size" {
		t.Errorf("%+v", w)
	}
	for _, tt := range []struct{ in, want string }{
		{"{tool: a}", "needs a name"},
		{"{name: a}", "needs the read-only tool"},
		{"{name: a, tool: b, select: rows}", "select must be a JSON Pointer"},
		{"{name: a, tool: b, binds: rows}", "binds must be a JSON Pointer"},
		{"{name: a, tool: b, args: {}}", `has no key "args"`},
		{"{name: a, tool: b, arguments: [1]}", ""},
		{"{name: a, tool: b, arguments: {x: {$arg: path}}}", "$arg must stand alone"},
		{"{name: a, tool: b, arguments: {x: [{$arg: /p, y: 1}]}}", "$arg must stand alone"},
		{"{name: a, tool: b, arguments: {x: {$arg: 1}}}", "$arg must stand alone"},
		{"{name: a, tool: b}\n  - {name: a, tool: c}", "is there twice"},
	} {
		_, err := ParseManifest("t.yaml", []byte(head+"witness:\n  - "+tt.in+"\n"))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "t.yaml:") {
			t.Errorf("%s: %v, want %q with its place", tt.in, err, tt.want)
		}
	}
}

func TestEstimateInManifest(t *testing.T) {
	const head = "server: db\ntool: run\nfields: [{path: /sql, kind: sql, dialect: postgres}]\n"
	m, err := ParseManifest("t.yaml", []byte(head+"estimate: {tool: db__run, argument: sql, arguments: {db: {$arg: /db}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if e := m.Rules.Estimate; e == nil || e.Tool != "db__run" || e.Argument != "sql" || string(e.Args) != `{"db":{"$arg":"/db"}}` {
		t.Errorf("%+v", e)
	}
	for _, tt := range []struct{ text, want string }{
		{head + "estimate: {argument: sql}", "needs the tool"},
		{head + "estimate: {tool: db__run}", "needs the name of that tool's argument"},
		{head + "estimate: {tool: db__run, argument: /sql}", "needs the name of that tool's argument"},
		{head + "estimate: {tool: db__run, argument: sql, arguments: {db: {$arg: db}}}", "the arguments of estimate"},
		{head + "estimate: {tool: db__run, argument: sql, select: /x}", "select"},
		{"server: db\ntool: run\nestimate: {tool: db__run, argument: sql}", "which of its arguments is SQL"},
		{"name: x\nlanguage: shell\ncode: ls\nestimate: {tool: db__run, argument: sql}", "which of its arguments is SQL"},
	} {
		if _, err := ParseManifest("t.yaml", []byte(tt.text+"\n")); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\n%v, want %q", tt.text, err, tt.want)
		}
	}
}
