package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport"
)

// A facts is structuredContent of the built-in tools; OutputSchema describes it.
type facts struct {
	ExitCode       int      `json:"exit_code"`
	Signal         string   `json:"signal,omitempty"`
	Stdout         string   `json:"stdout"`
	StdoutEncoding string   `json:"stdout_encoding,omitempty"` // "base64" where the bytes are not UTF-8
	Stderr         string   `json:"stderr"`
	StderrEncoding string   `json:"stderr_encoding,omitempty"`
	DurationMS     int64    `json:"duration_ms"`
	Tier           string   `json:"tier"`
	TierReason     string   `json:"tier_reason,omitempty"` // why it is that one
	Accelerator    string   `json:"accelerator,omitempty"` // of a virtual machine
	SandboxID      string   `json:"sandbox_id"`
	Truncated      bool     `json:"truncated"`
	KilledBy       string   `json:"killed_by,omitempty"`
	LimitsHit      []string `json:"limits_hit,omitempty"`
	PeakMemory     int64    `json:"peak_memory_bytes"`

	Session      string `json:"session,omitempty"`
	SessionNew   bool   `json:"session_new,omitempty"`
	SessionEnded string `json:"session_ended,omitempty"`
	Lost         bool   `json:"interpreter_ended,omitempty"`
	Job          uint32 `json:"job,omitempty"`

	Artifacts []artifactFacts `json:"artifacts,omitempty"`
	LeftOut   []string        `json:"artifacts_left_out,omitempty"`

	Connections []sallyport.Connection `json:"connections,omitempty"`
	Denied      []string               `json:"egress_denied,omitempty"` // what a rule kept it from reaching
	Receipt     *sallyport.Receipt     `json:"receipt,omitempty"`

	// Of a script; what follows Calls, of one that had to end.
	Calls   []sallyport.ScriptCall `json:"calls,omitzero"`
	Code    sallyport.Code         `json:"code,omitempty"`
	Message string                 `json:"message,omitempty"`
	Hint    string                 `json:"hint,omitempty"`
	Ticket  string                 `json:"ticket,omitempty"`
}

type content struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// metaRun is where a tool with an output schema of its own finds the facts.
const metaRun = "dev.sallyport/run"

// present makes a CallToolResult. A program that failed by itself is a result;
// isError says that the run did not come to its own end.
func present(job sallyport.Job, o Outcome) (sallyport.Output, error) {
	o.atCharacters(job.Limits.Or(sallyport.DefaultLimits()).Output)
	f := factsOf(job, o)
	result := map[string]any{"structuredContent": f}
	isError := o.KilledBy != ""
	if own := job.Tool.Code; own != nil && own.Source != "" && job.Tool.OutputSchema != nil {
		result["_meta"] = map[string]any{metaRun: f}
		delete(result, "structuredContent")
		if object(o.Stdout) && o.ExitCode == 0 && !isError {
			result["structuredContent"] = json.RawMessage(o.Stdout)
		} else {
			isError = true
		}
	}
	result["content"] = contentOf(job, o)
	result["isError"] = isError
	b, err := json.Marshal(result)
	return sallyport.Output{Content: b, IsError: isError, Unclear: o.KilledBy != "" && reached(o.Connections),
		Connections: o.Connections, Receipt: o.Receipt}, err
}

func factsOf(job sallyport.Job, o Outcome) facts {
	f := facts{
		ExitCode: o.ExitCode, Signal: o.Signal, DurationMS: o.Duration.Milliseconds(), Tier: o.Tier, TierReason: job.TierReason, SandboxID: o.SandboxID,
		Truncated: o.Truncated, KilledBy: o.KilledBy, LimitsHit: o.LimitsHit, PeakMemory: o.PeakMemory,
		Session: o.Session, SessionNew: o.New, SessionEnded: o.Ended, Lost: o.Lost, Job: o.Job,
	}
	for _, a := range o.Artifacts {
		f.Artifacts = append(f.Artifacts, artifactFacts{a.Path, mimeOf(a.Content), len(a.Content)})
	}
	f.LeftOut = o.LeftOut[:min(len(o.LeftOut), maxLeftOut)]
	f.Connections, f.Denied, f.Receipt = o.Connections, denied(o.Connections), o.Receipt
	if o.Receipt != nil {
		f.Accelerator = o.Receipt.Accel
	}
	f.Stdout, f.StdoutEncoding = lossless(o.Stdout)
	f.Stderr, f.StderrEncoding = lossless(o.Stderr)
	return f
}

// atCharacters takes off what the bound on output left of a character at the end of a
// stream, so that a text stays one.
func (o *Outcome) atCharacters(bound int64) {
	for _, b := range []*[]byte{&o.Stdout, &o.Stderr} {
		if o.Truncated && int64(len(*b)) >= bound {
			*b = wholeText(*b)
		}
	}
}

// wholeText is b without a character that it ends in the middle of.
func wholeText(b []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if end := b[len(b)-n:]; utf8.RuneStart(end[0]) {
			if !utf8.FullRune(end) {
				return b[:len(b)-n]
			}
			break
		}
	}
	return b
}

func contentOf(job sallyport.Job, o Outcome) []any {
	all := []any{}
	for _, t := range texts(o, job.Limits) {
		all = append(all, t)
	}
	for _, a := range o.Artifacts {
		all = append(all, artifact("sandbox://"+o.SandboxID+"/output/", a.Path, a.Content))
	}
	return all
}

// reached reports whether a run spoke with anybody: killed in the middle of that,
// nobody knows what it did there.
func reached(all []sallyport.Connection) bool {
	return slices.ContainsFunc(all, func(c sallyport.Connection) bool { return c.Allowed })
}

// lossless returns b as it is where JSON can hold it, else in base64.
func lossless(b []byte) (text, encoding string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return base64.StdEncoding.EncodeToString(b), "base64"
}

// denied names what a rule, and not the network, kept a run from reaching.
func denied(all []sallyport.Connection) (targets []string) {
	for _, c := range all {
		if !c.Allowed && c.Reason != "no_answer" && c.Reason != "no_address" && !slices.Contains(targets, c.Target) {
			targets = append(targets, c.Target)
		}
	}
	return targets
}

func object(b []byte) bool {
	var v map[string]json.RawMessage
	return utf8.Valid(b) && json.Unmarshal(b, &v) == nil && v != nil
}

// texts is what a model reads: stdout, then stderr, then what it should know.
func texts(o Outcome, l sallyport.Limits) []content {
	out := []content{{"text", strings.ToValidUTF8(string(o.Stdout), "\uFFFD")}}
	if len(o.Stderr) > 0 {
		out = append(out, content{"text", "stderr:\n" + strings.ToValidUTF8(string(o.Stderr), "\uFFFD")})
	}
	l = l.Or(sallyport.DefaultLimits())
	var notes []string
	switch {
	case o.KilledBy == "memory":
		notes = append(notes, fmt.Sprintf("The program was killed: it needed more than its %d MiB of memory.", l.Memory>>20))
	case o.KilledBy == "caller": // what follows says why
	case o.KilledBy == "timeout":
		notes = append(notes, "The program was killed: it did not end in time.")
	case o.Signal != "":
		notes = append(notes, "The program was ended by "+o.Signal+".")
	case o.ExitCode != 0:
		notes = append(notes, fmt.Sprintf("The program exited with status %d.", o.ExitCode))
	}
	for _, hit := range o.LimitsHit {
		switch hit {
		case "processes":
			notes = append(notes, fmt.Sprintf("It was refused more than %d processes.", l.Processes))
		case "disk":
			notes = append(notes, fmt.Sprintf("It was refused more than %d KiB of disk.", l.Disk>>10))
		case "memory":
			if o.KilledBy == "" {
				notes = append(notes, fmt.Sprintf("It was refused more than %d MiB of memory.", l.Memory>>20))
			}
		case "output":
			notes = append(notes, fmt.Sprintf("Only the first %d bytes of its output were kept.", l.Output))
		}
	}
	notes = append(notes, artifactNote(o)...)
	notes = append(notes, sessionNotes(o)...)
	if d := denied(o.Connections); len(d) > 0 {
		notes = append(notes, fmt.Sprintf("A rule of this gateway, not a fault of the network, kept it from reaching %s. Do not look for another way: an operator can allow a host for the tool.", strings.Join(d, ", ")))
	}
	if len(notes) > 0 {
		out = append(out, content{"text", strings.Join(notes, " ")})
	}
	return out
}
