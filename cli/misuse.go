package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// A Misuse is a command line that no command understands.
type Misuse struct {
	Command string // whose help says how, such as "sallyport agents add"
	Code    int    // status to end with
	Err     error
}

// ownStatus marks a command whose statuses below 125 are a program's own.
const ownStatus = "own status"

func misuse(cmd *cobra.Command, err error) error {
	m := &Misuse{cmd.CommandPath(), ExitUsage, err}
	if cmd.Annotations[ownStatus] != "" {
		m.Code = ExitSandbox
	}
	return m
}

func (m *Misuse) Error() string { return m.Err.Error() }
func (m *Misuse) Unwrap() error { return m.Err }

func (m *Misuse) hint() string {
	hint := fmt.Sprintf("`%s --help` says how", m.Command)
	if m.Code == ExitSandbox {
		hint += "; the program and its own flags go after --"
	}
	return hint
}

// Teach makes every command of the tree answer misuse with what was wrong and
// where to read on. A command that only has commands shows its help.
func Teach(root *cobra.Command) {
	root.SetFlagErrorFunc(misuse)
	teach(root)
}

func teach(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		teach(c)
	}
	if !cmd.Runnable() {
		cmd.Args, cmd.DisableFlagsInUseLine = noSuchCommand, true
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		return
	}
	check := cmd.Args
	if check == nil || cmd.DisableFlagParsing { // completion's own
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return misuse(cmd, fmt.Errorf("expected `%s`, got %s", cmd.UseLine(), counted(len(args))))
		}
		return nil
	}
}

func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return misuse(cmd, errors.New(message))
}

func counted(n int) string {
	switch n {
	case 0:
		return "no arguments"
	case 1:
		return "1 argument"
	default:
		return fmt.Sprintf("%d arguments", n)
	}
}
