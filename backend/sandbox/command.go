package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// arguments are those of the built-in tools.
type arguments struct {
	code    string
	stdin   string
	files   map[string][]byte
	timeout time.Duration // 0 if not given
	image   string        // "" if not given
	session string        // "" if none
	job     bool          // in the background of the session
	tools   []string      // that the code may call
}

// A language says how its code is run.
type language struct {
	file string
	argv []string
}

// languages by name. The code lies in the working folder beside the caller's
// files, so that it can import them and stdin stays the caller's.
var languages = map[string]language{
	"python":     {"main.py", []string{"python3"}},
	"javascript": {"main.js", []string{"node"}},
	"shell":      {"main.sh", []string{"bash"}},
}

// command turns a job into what runs.
func command(job sallyport.Job) (Command, error) {
	c := Command{Tier: job.Tier, Limits: job.Limits.Or(sallyport.DefaultLimits()), CallID: job.CallID, Owner: owner(job.Who), Files: map[string][]byte{}, Reach: job.Egress, Image: job.Tool.Manifest.Image, GPU: job.Tool.Manifest.GPU}
	script := job.Tool.Code
	if script == nil {
		return c, refuse(sallyport.Internal, "report this", "the tool %q has no code to run in a sandbox", job.Tool.Name)
	}
	if script.Language == wasm {
		c.placeModule(job)
		return c, nil
	}
	lang, ok := languages[script.Language]
	if !ok {
		return c, refuse(sallyport.Unavailable, "use python, javascript, shell or wasm", "the tool's language %.40q is not known", script.Language)
	}
	source := script.Source
	if source == "" {
		a, err := parseArguments(job.Args, c.Limits.Timeout)
		if err != nil {
			return c, err
		}
		if err := a.mayCall(job); err != nil {
			return c, err
		}
		c.Session = a.run(job, script.Language)
		source, c.Stdin = a.code, []byte(a.stdin)
		if a.files != nil {
			c.Files = a.files
		}
		if a.timeout > 0 {
			c.Limits.Timeout = a.timeout
		}
		if a.image != "" {
			if c.Image = job.Tool.Manifest.Images[a.image]; c.Image == "" {
				return c, refuse(sallyport.Invalid, "leave it out, or ask the operator to list it in sandbox.images", "there is no image %.80q for this tool", a.image)
			}
		}
	} else {
		c.Stdin = job.Args
	}
	if c.Session != nil {
		return c, nil
	}
	return c, c.place(job, lang, source)
}

// parseArguments reads the arguments of a built-in tool. The schema was checked
// before; this repeats what safety needs, since a manifest may loosen a schema.
func parseArguments(raw json.RawMessage, limit time.Duration) (arguments, error) {
	var a arguments
	var in map[string]json.RawMessage
	if err := json.Unmarshal(raw, &in); err != nil {
		return a, refuse(sallyport.Invalid, "pass a JSON object", "the arguments are not a JSON object")
	}
	for name, v := range in {
		var err error
		switch name {
		case "code":
			err = text(name, v, &a.code)
		case "stdin":
			err = text(name, v, &a.stdin)
		case "files":
			a.files, err = files(v)
		case "timeout_seconds":
			a.timeout, err = timeout(v, limit)
		case "image":
			if err = text(name, v, &a.image); err == nil && a.image == "" {
				err = refuse(sallyport.Invalid, "name an image, or leave it out", "image is empty")
			}
		case "network":
			err = network(v)
		case "session":
			if err = text(name, v, &a.session); err == nil {
				err = checkSession(a.session)
			}
		case "background":
			if json.Unmarshal(v, &a.job) != nil || kind(v) != "a boolean" {
				err = refuse(sallyport.Invalid, "pass true, or leave it out", "background is %s, not a boolean", kind(v))
			}
		case "tools":
			a.tools, err = scriptTools(v)
		case "tier": // decided before: Job.Tier
		default:
			err = refuse(sallyport.Invalid, "remove it", "there is no argument %.40q", name)
		}
		if err != nil {
			return a, err
		}
	}
	if _, ok := in["code"]; !ok || strings.TrimSpace(a.code) == "" {
		return a, refuse(sallyport.Invalid, "pass the program as a string", "code is missing or empty")
	}
	if a.job && a.session == "" {
		return a, refuse(sallyport.Invalid, "name a session", "background: a program can only go on in a session")
	}
	return a, nil
}

func text(name string, raw json.RawMessage, to *string) error {
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, to) != nil {
		return refuse(sallyport.Invalid, "pass a string", "%s is %s, not a string", name, kind(raw))
	}
	return nil
}

func files(raw json.RawMessage) (map[string][]byte, error) {
	var in map[string]json.RawMessage
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &in) != nil {
		return nil, refuse(sallyport.Invalid, `pass {"name": "content"}`, "files is %s, not an object", kind(raw))
	}
	out := make(map[string][]byte, len(in))
	for name, v := range in {
		var content string
		if err := text(fmt.Sprintf("files[%.128q]", name), v, &content); err != nil {
			return nil, err
		}
		out[name] = []byte(content)
	}
	return out, nil
}

// timeout reads timeout_seconds: a number above 0 and at most the tool's limit.
// It is refused, not clamped: a caller who asks for an hour must not believe in it.
func timeout(raw json.RawMessage, limit time.Duration) (time.Duration, error) {
	bad := func(format string, args ...any) (time.Duration, error) {
		return 0, refuse(sallyport.Invalid, fmt.Sprintf("pass a number of seconds above 0 and at most %g, or leave it out", limit.Seconds()), format, args...)
	}
	var s float64
	if k := kind(raw); k != "a number" {
		return bad("timeout_seconds is %s, not a number", k)
	}
	if err := json.Unmarshal(raw, &s); err != nil || math.IsInf(s, 0) || math.IsNaN(s) {
		return bad("timeout_seconds is out of range")
	}
	switch {
	case s <= 0:
		return bad("timeout_seconds is %s", raw)
	case s > limit.Seconds():
		return bad("timeout_seconds is %s, above the tool's limit of %g s", raw, limit.Seconds())
	}
	return max(time.Millisecond, time.Duration(s*float64(time.Second))), nil
}

func network(raw json.RawMessage) error {
	if string(raw) == `"none"` {
		return nil
	}
	return refuse(sallyport.Invalid, `pass "none", or leave it out`, "network: a call can only take the network away")
}

func kind(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}
