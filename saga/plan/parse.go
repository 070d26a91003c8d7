// Package plan reads plans of sagas, and judges them: what each step and each
// compensation would do, where values from results may go, and what a person
// should know beforehand. It touches nothing.
package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// Bounds of a plan.
const (
	MaxBytes    = 256 << 10
	MaxSteps    = 50
	maxDepth    = 64
	maxAttempts = 10
	maxBackoff  = 10 * time.Minute
	maxTimeout  = time.Hour
)

// A Plan is what somebody wrote: steps in order, each with what undoes it.
type Plan struct {
	Name    string
	Version string
	Steps   []Step
}

// A Step is one call of a plan.
type Step struct {
	ID       string
	Do       Call
	Undo     *Call // nil: the tool's manifest says what undoes it
	None     bool  // nothing undoes it, and whoever wrote the plan says so
	NoReturn bool  // once it is done there is only forward
	Line     int
}

// A Call is a tool with arguments in which {"$ref": …} stands for a value that
// is known only when the plan runs.
type Call struct {
	Tool       string
	Args       json.RawMessage // canonical
	Idempotent bool
	Timeout    time.Duration
	Attempts   int
	Backoff    time.Duration
}

var (
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,48}$`)
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// Parse reads a plan, YAML or JSON, strictly: unknown keys, wrong types,
// duplicates, references to later steps are refused with file, line and what to
// write instead.
func Parse(file string, text []byte) (Plan, error) {
	s := source{file}
	root, err := s.read(text)
	if err != nil {
		return Plan{}, err
	}
	var p Plan
	var steps *node
	err = s.object(root, "a plan", fields{
		"name":    s.pattern(&p.Name, namePattern, "1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit"),
		"version": s.pattern(&p.Version, namePattern, "for example \"1\", in quotes"),
		"steps":   func(n node) error { steps = &n; return nil },
	})
	switch {
	case err != nil:
		return p, err
	case p.Name == "":
		return p, s.errorf(root.line, "add name:", "the plan has no name")
	case steps == nil || steps.kind != '[' || len(steps.items) == 0:
		return p, s.errorf(root.line, "add steps: and a list", "the plan has no steps")
	case len(steps.items) > MaxSteps:
		return p, s.errorf(steps.line, "split the plan", "%d steps, at most %d are taken", len(steps.items), MaxSteps)
	}
	for _, item := range steps.items {
		step, err := s.step(item)
		if err != nil {
			return p, err
		}
		if slices.ContainsFunc(p.Steps, func(o Step) bool { return o.ID == step.ID }) {
			return p, s.errorf(step.Line, "give each step an id of its own", "the id %q is there twice", step.ID)
		}
		if err := s.references(step, p.Steps); err != nil {
			return p, err
		}
		p.Steps = append(p.Steps, step)
	}
	return p, nil
}

func (s source) step(n node) (Step, error) {
	st := Step{Line: n.line, Do: Call{Args: json.RawMessage("{}")}}
	err := s.object(n, "a step", fields{
		"id":                 s.pattern(&st.ID, idPattern, "1 to 48 of A-Z a-z 0-9 _ -"),
		"tool":               s.text(&st.Do.Tool),
		"arguments":          s.arguments(&st.Do.Args),
		"timeout":            s.duration(&st.Do.Timeout, maxTimeout),
		"retry":              s.retry(&st.Do),
		"point_of_no_return": s.boolean(&st.NoReturn),
		"compensate":         func(n node) error { return s.compensate(n, &st) },
	})
	switch {
	case err != nil:
	case st.ID == "":
		err = s.errorf(n.line, "add id:", "a step needs an id")
	case st.Do.Tool == "":
		err = s.errorf(n.line, "add tool:", "step %q names no tool", st.ID)
	}
	return st, err
}

func (s source) compensate(n node, st *Step) error {
	if n.kind == '"' && n.text == "none" {
		st.None = true
		return nil
	}
	c := &Call{Args: json.RawMessage("{}")}
	st.Undo = c
	err := s.object(n, "compensate", fields{
		"tool": s.text(&c.Tool), "arguments": s.arguments(&c.Args), "idempotent": s.boolean(&c.Idempotent),
		"timeout": s.duration(&c.Timeout, maxTimeout), "retry": s.retry(c),
	})
	if err == nil && c.Tool == "" {
		err = s.errorf(n.line, "add tool:, or write compensate: none", "compensate needs the tool that undoes the step")
	}
	return err
}

func (s source) retry(c *Call) setter {
	return func(n node) error {
		return s.object(n, "retry", fields{
			"attempts": s.count(&c.Attempts, maxAttempts), "backoff": s.duration(&c.Backoff, maxBackoff),
		})
	}
}

// A setter takes one value in.
type setter func(node) error

type fields map[string]setter

// object reads known keys. Each at most once: a plan must mean one thing.
func (s source) object(n node, what string, known fields) error {
	if n.kind != '{' {
		return s.errorf(n.line, "write key: value lines", "%s must be a block of keys, not %s", what, n.what())
	}
	for _, m := range n.members {
		set, ok := known[m.name]
		if !ok {
			return s.errorf(m.line, "the keys are "+strings.Join(slices.Sorted(maps.Keys(known)), ", "), "%s has no key %.60q", what, m.name)
		}
		if err := set(m.value); err != nil {
			return err
		}
	}
	return nil
}

func (s source) text(to *string) setter {
	return func(n node) error {
		if n.kind != '"' || n.text == "" || len(n.text) > 256 {
			return s.errorf(n.line, "write a word, in quotes if it looks like a number", "expected text, got %s", n.what())
		}
		*to = n.text
		return nil
	}
}

func (s source) pattern(to *string, re *regexp.Regexp, hint string) setter {
	return func(n node) error {
		if n.kind != '"' || !re.MatchString(n.text) {
			return s.errorf(n.line, hint, "unexpected value %.60q", n.text)
		}
		*to = n.text
		return nil
	}
}

func (s source) boolean(to *bool) setter {
	return func(n node) error {
		if n.kind != 't' {
			return s.errorf(n.line, "write true or false", "expected true or false, got %s", n.what())
		}
		*to = n.text == "true"
		return nil
	}
}

func (s source) count(to *int, most int) setter {
	return func(n node) error {
		i, err := strconv.Atoi(n.text)
		if n.kind != '0' || err != nil || i < 1 || i > most {
			return s.errorf(n.line, fmt.Sprintf("a number from 1 to %d", most), "unexpected value %.40q", n.text)
		}
		*to = i
		return nil
	}
}

func (s source) duration(to *time.Duration, most time.Duration) setter {
	return func(n node) error {
		v, err := time.ParseDuration(n.text)
		if n.kind != '"' || err != nil || v <= 0 || v > most {
			return s.errorf(n.line, "for example 30s, at most "+most.String(), "expected a length of time with its unit, got %.40q", n.text)
		}
		*to = v
		return nil
	}
}

// arguments keeps the template, canonical. Its references are well formed.
func (s source) arguments(to *json.RawMessage) setter {
	return func(n node) error {
		if n.kind != '{' || isRef(n) {
			return s.errorf(n.line, "write an object", "arguments must be a block of keys")
		}
		if err := s.wellFormed(n); err != nil {
			return err
		}
		c, err := sallyport.Canonical(n.json(nil))
		if err != nil {
			return s.errorf(n.line, "correct it", "%v", err)
		}
		*to = c
		return nil
	}
}
