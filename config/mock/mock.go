// Package mock makes an MCP server for local development out of a list of tools
// with canned answers. The server is a short Python program, so that it runs in
// a sandbox as any other does.
package mock

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/goccy/go-yaml"

	"sallyport.dev/sallyport"
)

//go:embed server.py
var server string

//go:embed sample.yaml
var sample []byte

// A file is what the operator writes.
type file struct {
	Tools []tool `yaml:"tools"`
}

type tool struct {
	Name        string         `yaml:"name"`
	Description string         `yaml:"description"`
	InputSchema map[string]any `yaml:"input_schema"`
	Annotations map[string]any `yaml:"annotations"`
	Answers     []answer       `yaml:"answers"` // the first one that fits counts
}

type answer struct {
	When       map[string]any `yaml:"when"` // arguments that it is for; none: all
	Text       *string        `yaml:"text"`
	Structured map[string]any `yaml:"structured"`
	Error      bool           `yaml:"error"`    // the tool failed
	Fault      string         `yaml:"fault"`    // the server failed: a protocol error
	Latency    string         `yaml:"latency"`  // before it comes, e.g. 200ms
	Progress   int            `yaml:"progress"` // how many times it tells how far it is, within latency
}

// Bounds: what is too large for an argument of a program, or to wait for.
const (
	maxTools   = 64 << 10
	maxLatency = 10 * time.Minute
)

var name = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Command is the command line of a server with the tools of a file; nil stands
// for a sample. Errors name the file.
func Command(path string, src []byte) ([]string, error) {
	if src == nil {
		path, src = "sample.yaml", sample
	}
	bad := func(hint, format string, args ...any) error {
		return &sallyport.Error{Code: sallyport.Invalid, Message: path + ": " + fmt.Sprintf(format, args...), Hint: hint}
	}
	const keys = "a tool has name, description, input_schema, annotations and answers; an answer has when, text, structured, error, fault, latency and progress"
	var f file
	if err := yaml.UnmarshalWithOptions(src, &f, yaml.Strict()); err != nil {
		return nil, bad(keys, "%.300s", yaml.FormatError(err, false, false))
	}
	if len(f.Tools) == 0 {
		return nil, bad("write tools: and a list of them", "it has no tools")
	}
	seen := map[string]bool{}
	var out []map[string]any
	for _, t := range f.Tools {
		switch {
		case !name.MatchString(t.Name):
			return nil, bad("use letters, digits, _ . and -, at most 64", "%.80q cannot be the name of a tool", t.Name)
		case seen[t.Name]:
			return nil, bad("keep one of them", "the tool %s is there twice", t.Name)
		case len(t.Answers) == 0:
			return nil, bad("add answers: [{text: done}]", "the tool %s has no answers", t.Name)
		}
		seen[t.Name] = true
		m, err := t.encoded()
		if err != nil {
			return nil, bad("for example latency: 200ms", "the tool %s: %v", t.Name, err)
		}
		out = append(out, m)
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, bad("names in it must be texts", "%v", err)
	}
	if len(b) > maxTools {
		return nil, bad("shorten the answers, or add a second mock", "its tools have %d bytes, more than %d", len(b), maxTools)
	}
	return []string{"python3", "-c", server, string(b)}, nil
}

// encoded is the tool as the program reads it.
func (t tool) encoded() (map[string]any, error) {
	m := map[string]any{"name": t.Name, "description": t.Description, "inputSchema": map[string]any{"type": "object"}}
	if t.InputSchema != nil {
		m["inputSchema"] = t.InputSchema
	}
	if t.Annotations != nil {
		m["annotations"] = t.Annotations
	}
	var answers []map[string]any
	for _, a := range t.Answers {
		x := map[string]any{"error": a.Error, "progress": a.Progress}
		if a.Latency != "" {
			d, err := time.ParseDuration(a.Latency)
			if err != nil || d < 0 || d > maxLatency {
				return nil, fmt.Errorf("latency must be a time of at most %s, not %.40q", maxLatency, a.Latency)
			}
			x["latency"] = d.Seconds()
		}
		if a.Progress < 0 || a.Progress > 1000 {
			return nil, fmt.Errorf("progress must be between 0 and 1000, not %d", a.Progress)
		}
		if a.Text != nil {
			x["text"] = *a.Text
		}
		if a.Structured != nil {
			x["structured"] = a.Structured
		}
		if a.Fault != "" {
			x["fault"] = a.Fault
		}
		if a.When != nil {
			x["when"] = a.When
		}
		answers = append(answers, x)
	}
	m["answers"] = answers
	return m, nil
}
