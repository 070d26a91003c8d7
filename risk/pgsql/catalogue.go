package pgsql

import (
	_ "embed"
	"strings"
)

//go:embed catalogue.txt
var catalogueText string

//go:embed judged.txt
var judgedText string

// A judgement is what calling a function means: "low", "medium", "high",
// "critical", "irreversible", or "sql" where an argument is a query.
type judgement string

// A catalogue knows PostgreSQL's built-in functions, operators and types by name.
type catalogue struct {
	functions map[string]judgement
	operators map[string]bool
	types     map[string]bool
}

// newCatalogue reads the committed data. What has an immutable or stable
// overload only is low; volatile is high; judged.txt has the last word.
func newCatalogue() *catalogue {
	c := &catalogue{functions: make(map[string]judgement, 4096), operators: make(map[string]bool, 128), types: make(map[string]bool, 128)}
	for line := range strings.Lines(catalogueText) {
		kind, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || kind == "#" {
			continue
		}
		switch kind {
		case "i", "s":
			c.functions[name] = "low"
		case "v":
			c.functions[name] = "high"
		case "o":
			c.operators[name] = true
		case "t":
			c.types[name] = true
		}
	}
	for line := range strings.Lines(judgedText) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] == "#" {
			continue
		}
		for _, name := range fields[1:] {
			c.functions[name] = judgement(fields[0])
		}
	}
	return c
}
