// Package redact cleans what comes out of a tool: it masks secrets and
// personal data, makes hidden characters visible, bounds the size and flags
// what looks like an instruction to the model.
//
// Secrets are found by gitleaks' rules and by rules of our own for connection
// strings, password keys and authorization headers; only the secret part is
// masked. JSON is walked token by token: strings are judged decoded, names of
// members too, and everything that did not change stays byte for byte.
//
// Stored secrets are also found in pieces, within one result and over several
// that one reader gets (package known).
//
// Out of reach, by decision: other secrets that are split across strings or
// content blocks, JSON numbers, encrypted or compressed data, images and sound, and
// encodings other than JSON's escapes and one layer of base64. The primary
// defence is that a sandbox never holds the secret.
package redact

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact/inline"
	"sallyport.dev/sallyport/redact/known"
	"sallyport.dev/sallyport/redact/visible"
	"sallyport.dev/sallyport/redact/wrap"
)

// The defaults and bounds of Options.
const (
	DefaultMaxBytes = 1 << 20
	MinMaxBytes     = 4 << 10
	DefaultBase64   = 1 << 20
	DefaultMaxImage = 8 << 20
)

// Options say how a Sanitiser works. The zero value has the defaults, without
// personal data.
type Options struct {
	// MaxBytes bounds a result. 0 means DefaultMaxBytes; less than MinMaxBytes
	// means MinMaxBytes.
	MaxBytes int
	PII      PII
	// Base64 is the longest run of base64, in bytes, that is looked into.
	// 0 means DefaultBase64, less means none.
	Base64 int
	// Images are hosts whose images clients may load: names, *.NAME or *. (link.Filter)
	Images []string
	// MaxImage bounds an image or sound in a result, in bytes. 0 means DefaultMaxImage.
	MaxImage int
	// Schema, if set, checks structured content against tool.OutputSchema.
	// Its error is never shown: it may quote the data.
	Schema func(tool sallyport.Tool, structured json.RawMessage) error
	// Known, if set, returns the secrets that are searched for by value. It is
	// called for each text.
	Known func() []Known
	// Fingerprint, if set, stands for a secret in what Secrets tells: always the
	// same for one value, and of no use to who guesses. (secret.Vault)
	Fingerprint func(value string) string
}

// A Sanitiser cleans results. It is safe for concurrent use.
type Sanitiser struct {
	opt     Options
	load    func() (*rules, error)
	indexes known.Cache
	memory  known.Memory
}

// New returns a Sanitiser. It compiles nothing yet: see Warm.
func New(opt Options) *Sanitiser {
	if opt.MaxBytes == 0 {
		opt.MaxBytes = DefaultMaxBytes
	}
	opt.MaxBytes = max(opt.MaxBytes, MinMaxBytes)
	opt.MaxImage = cmp.Or(opt.MaxImage, DefaultMaxImage)
	if opt.Base64 == 0 {
		opt.Base64 = DefaultBase64
	}
	if opt.Fingerprint == nil {
		opt.Fingerprint = func(string) string { return "unknown" }
	}
	return &Sanitiser{opt: opt, load: sync.OnceValues(newRules)}
}

// Warm compiles the rules, about 0.1 s of work, which otherwise the first call
// pays. Without them nothing is let out.
func (s *Sanitiser) Warm() error {
	_, err := s.load()
	return err
}

// Speaks tells whether a text gives orders to a model. It is a hint. Where
// nobody can tell, it says yes.
func (s *Sanitiser) Speaks(text string) bool {
	r, err := s.load()
	if err != nil {
		return true
	}
	_, speaks := r.scan(text)
	return speaks
}

func (s *Sanitiser) work(show bool) (*work, error) {
	r, err := s.load()
	if err != nil {
		return nil, err
	}
	return &work{rules: r, pii: s.opt.PII, b64: s.opt.Base64, show: show, cache: &s.indexes}, nil
}

// Result masks secrets, makes hidden characters visible and bounds the size of
// a CallToolResult. A malformed one becomes a well-formed tool error. findings
// name what was done, never the secret. A result that needs no cleaning comes
// back as the same bytes. What completes a stored secret, with what the reader got
// before, is masked too; reader "" is nobody. err is an *sallyport.Error, and then there is no
// result to show.
func (s *Sanitiser) Result(reader string, tool sallyport.Tool, out sallyport.Output) (clean json.RawMessage, isError bool, findings []string, err error) {
	w, err := s.work(true)
	if err != nil {
		return nil, true, nil, &sallyport.Error{
			Code: sallyport.Internal, Step: sallyport.Sanitise, Message: "the rules for secrets did not load",
			Hint: "the result is withheld; see the gateway's log", Err: err,
		}
	}
	var aside inline.Shelf
	shown, seen := inline.Show(out.Content, &aside, s.opt.Images, s.opt.MaxImage)
	out.Content = shown
	w.know(s.opt.Known, out.Content)
	w.recall(&s.memory, reader, out.Content)
	c := newCopier(out.Content, w)
	c.check = len(out.Content) > s.opt.MaxBytes
	clean, read, err := c.result()
	if err == nil && (c.check || len(clean) > s.opt.MaxBytes) {
		w.tally = tally{}
		clean, err = w.bounded(out.Content, s.opt.MaxBytes)
	}
	if err != nil {
		return failure(tool, err), true, []string{"malformed output"}, nil
	}
	if tool.Manifest.Untrusted {
		if clean, err = s.wrapped(w, clean, out.Content, tool); err != nil {
			return failure(tool, err), true, []string{"malformed output"}, nil
		}
		w.tally.notes = append(w.tally.notes, "untrusted: wrapped")
	}
	clean = aside.Take(clean)
	w.tally.notes = append(append(w.tally.notes, seen...), w.cut...)
	isError = out.IsError || read.isError
	if !isError {
		w.tally.notes = append(w.tally.notes, s.schema(tool, read.structured)...)
	}
	return clean, isError, w.tally.findings(), nil
}

// wrapped has its boundary within the bound on results: what does not fit with its
// boundaries is cut further.
func (s *Sanitiser) wrapped(w *work, clean, raw []byte, tool sallyport.Tool) ([]byte, error) {
	for limit := s.opt.MaxBytes; ; {
		out, err := wrap.Result(clean, tool.Name)
		if err != nil || len(out) <= s.opt.MaxBytes {
			return out, err
		}
		if limit /= 2; limit < 2*reserve {
			return nil, malformed("it has too many blocks of text to wrap")
		}
		w.tally = tally{}
		if clean, err = w.bounded(raw, limit); err != nil {
			return nil, err
		}
	}
}

func (s *Sanitiser) schema(tool sallyport.Tool, structured json.RawMessage) []string {
	switch {
	case len(tool.OutputSchema) == 0 || s.opt.Schema == nil:
	case structured == nil:
		return []string{"flag: structured output is missing"}
	case s.opt.Schema(tool, structured) != nil:
		return []string{"flag: structured output does not match the tool's schema"}
	}
	return nil
}

// failure is the tool error that stands for a malformed result. A tool with an
// output schema gets no structured content that could not match it.
func failure(tool sallyport.Tool, err error) json.RawMessage {
	text := "it is not valid JSON"
	if shape, ok := errors.AsType[*shapeError](err); ok {
		text = shape.text
	}
	message := fmt.Sprintf("The tool %s answered with a malformed result: %s.", tool.Name, text)
	const hint = "This is a fault of the tool, not of the call; its effect, if any, has happened. Tell its operator."
	out := append([]byte(`{"content":[`), textBlock(message+" "+hint)...)
	out = append(out, `],"isError":true`...)
	if len(tool.OutputSchema) == 0 {
		out = fmt.Appendf(out, `,"structuredContent":{"code":%q,"step":%q,"message":`, sallyport.Upstream, sallyport.Sanitise)
		out = quote(out, message)
		out = append(out, `,"hint":`...)
		out = append(quote(out, hint), '}')
	}
	return append(out, '}')
}

// Notice does for one notification what Result does for a result. Parameters
// that are malformed, or larger than a result may be, are replaced.
func (s *Sanitiser) Notice(reader string, n sallyport.Notice) sallyport.Notice {
	if len(n.Params) == 0 {
		return n
	}
	n.Params = s.json(reader, n.Params, true)
	if len(n.Params) > s.opt.MaxBytes {
		n.Params = fmt.Appendf(nil, `{"truncated":true,"total_bytes":%d}`, len(n.Params))
	}
	return n
}

// JSON masks secrets in canonical arguments, for the record. It changes
// nothing else.
func (s *Sanitiser) JSON(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return v
	}
	return s.json("", v, false)
}

func (s *Sanitiser) json(reader string, v json.RawMessage, show bool) json.RawMessage {
	w, err := s.work(show)
	if err != nil {
		return json.RawMessage(`{"withheld":"the rules for secrets did not load"}`)
	}
	if show {
		w.links = s.links
	}
	w.know(s.opt.Known, v)
	w.recall(&s.memory, reader, v)
	out, err := newCopier(v, w).document()
	if err != nil {
		return fmt.Appendf(nil, `{"withheld":"not valid JSON","total_bytes":%d}`, len(v))
	}
	return out
}

func (s *Sanitiser) links(text string) string { return inline.Text(text, s.opt.Images) }

// Text masks secrets and control characters in an error message, takes the harm
// out of its links, and bounds it like a result.
func (s *Sanitiser) Text(t string) string {
	w, err := s.work(false)
	if err != nil {
		return "(withheld: the rules for secrets did not load)"
	}
	t = s.links(t)
	w.know(s.opt.Known, []byte(t))
	total := len(t)
	if total <= s.opt.MaxBytes {
		return visible.String(w.clean(t))
	}
	t, n := w.cutText(t, s.opt.MaxBytes)
	return visible.String(t) + truncated(n, total)
}
