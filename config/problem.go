package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/token"

	"sallyport.dev/sallyport"
)

// step is what errors of this package carry: they come up before any call.
const step sallyport.Step = "configure"

// maxProblems bounds what one reading complains about.
const maxProblems = 20

// A pos is a place in the file; the zero pos is the file as a whole.
type pos struct{ line, column int }

func at(t *token.Token) pos {
	if t == nil || t.Position == nil {
		return pos{}
	}
	return pos{t.Position.Line, t.Position.Column}
}

// A problem is one thing that is wrong.
type problem struct {
	pos        pos
	text, hint string
}

// problems turns what was found into one error, each an *sallyport.Error with
// its place in the message, in the order of the file.
func problems(file string, found []problem) error {
	slices.SortStableFunc(found, func(a, b problem) int {
		if a.pos.line != b.pos.line {
			return a.pos.line - b.pos.line
		}
		return a.pos.column - b.pos.column
	})
	var errs []error
	for i, p := range found {
		if i == maxProblems {
			break
		}
		errs = append(errs, p.err(file))
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

func (p problem) err(file string) error {
	message := file + ": " + p.text
	if p.pos.line > 0 {
		message = fmt.Sprintf("%s:%d:%d: %s", file, p.pos.line, p.pos.column, p.text)
	}
	return &sallyport.Error{Code: sallyport.Invalid, Step: step, Message: message, Hint: p.hint}
}
