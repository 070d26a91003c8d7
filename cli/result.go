package cli

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
)

// A toolResult is a CallToolResult as far as a terminal shows it.
type toolResult struct {
	Content    []toolContent   `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	Meta       struct {
		Run *ranCode `json:"dev.sallyport/run"`
	} `json:"_meta"`
}

type toolContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
	Mime string `json:"mimeType"`
	Data string `json:"data"`
	URI  string `json:"uri"` // of a link

	Resource struct { // that is part of the result, such as a file that a program left
		URI  string `json:"uri"`
		Mime string `json:"mimeType"`
		Text string `json:"text"`
		Blob string `json:"blob"` // in base64
	} `json:"resource"`
}

// String names what a terminal does not show: what it is, and how much.
func (c toolContent) String() string {
	r := c.Resource
	size := cmp.Or(len(r.Text), base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(r.Blob+c.Data, "="))))
	words := slices.DeleteFunc([]string{c.Type, cmp.Or(r.URI, c.URI), cmp.Or(r.Mime, c.Mime)}, func(s string) bool { return s == "" })
	if c.Type != "resource_link" {
		words = append(words, strconv.Itoa(size)+" bytes")
	}
	return visible.String(strings.Join(words, ", "))
}

// A ranCode is what a sandbox says of the code that it ran.
type ranCode struct {
	SandboxID      string `json:"sandbox_id"`
	Stdout         string `json:"stdout"`
	StdoutEncoding string `json:"stdout_encoding"`
	Stderr         string `json:"stderr"`
	StderrEncoding string `json:"stderr_encoding"`
}

// ran is what a sandbox says, or nil if the result is not one of code.
func (r toolResult) ran() *ranCode {
	var c ranCode
	if r.Meta.Run != nil {
		return r.Meta.Run
	}
	if json.Unmarshal(r.Structured, &c) != nil || c.SandboxID == "" {
		return nil
	}
	return &c
}

// waits tells whether a script had to end because a call of its waits for a human.
func waits(result json.RawMessage) bool {
	var r struct {
		Structured struct {
			Code sallyport.Code `json:"code"`
		} `json:"structuredContent"`
	}
	return json.Unmarshal(result, &r) == nil && r.Structured.Code == sallyport.Pending
}

// showResult prints a result the way a terminal can take it: only what would
// steer the terminal is made visible. Code's own output goes where it went in
// the sandbox, and what the sandbox says about it to standard error.
func (a *App) showResult(res adminapi.CallResult) error {
	var r toolResult
	if err := json.Unmarshal(res.Result, &r); err != nil {
		return fmt.Errorf("the result is not what a tool returns: %w", err)
	}
	c := r.ran()
	if c == nil {
		a.showContent(r.Content)
		return nil
	}
	stdout, stderr := decoded(c.Stdout, c.StdoutEncoding), decoded(c.Stderr, c.StderrEncoding)
	fmt.Fprint(a.Out, line(visible.String(stdout)))
	fmt.Fprint(a.Err, line(visible.String(stderr)))
	// The texts repeat both streams, then say how the run ended.
	for i, t := range r.Content {
		switch {
		case t.Type != "text":
			a.showContent([]toolContent{t})
		case i > 0 && !strings.HasPrefix(t.Text, "stderr:\n"):
			fmt.Fprintf(a.Err, "[%s]\n", visible.String(t.Text))
		}
	}
	return nil
}

func (a *App) showContent(content []toolContent) {
	for _, c := range content {
		if c.Type == "text" {
			fmt.Fprint(a.Out, line(visible.String(c.Text)))
			continue
		}
		fmt.Fprintf(a.Out, "[%s; --json shows it]\n", c)
	}
}

// line ends a text with a line break, unless it is empty.
func line(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// decoded is what a program printed; bytes that are no UTF-8 come in base64.
func decoded(s, encoding string) string {
	if encoding != "base64" {
		return s
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return s
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
