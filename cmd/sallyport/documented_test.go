package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every command and flag that help shows stands in docs/operations.md.
func TestEveryCommandIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Every command\n")
	rows := map[string]string{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "`"); strings.HasPrefix(line, "| `") {
			rows[strings.ReplaceAll(cells[1], `\|`, "|")] = line
		}
	}
	seen := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		use := strings.TrimPrefix(strings.Replace(cmd.UseLine(), " [flags]", "", 1), "sallyport ")
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "sallyport" || cmd.HasSubCommands() && rows[use] == "" || cmd.HasParent() && cmd.Parent().Hidden {
			return
		}
		seen++
		if rows[use] == "" {
			t.Errorf("docs/operations.md has no row for `%s`", use)
			return
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && !strings.Contains(rows[use], "`--"+f.Name+"`") {
				t.Errorf("docs/operations.md does not name --%s of `%s`", f.Name, use)
			}
		})
		delete(rows, use)
	}
	walk((&program{}).root())
	for use := range rows {
		t.Errorf("docs/operations.md has `%s`, which is no command", use)
	}
	if seen < 60 {
		t.Errorf("only %d commands found: the search is broken", seen)
	}
}
