package sallyport

import (
	"cmp"
	"encoding/json"
	"time"
)

// A Tool is one callable thing, as the catalogue holds it.
type Tool struct {
	Name         string          // exposed name, at most 48 characters of [A-Za-z0-9_-]
	Version      string          // the manifest's, or "1"
	Description  string          // for people; Definition is what agents see
	Definition   json.RawMessage // the listed object, with Name already mapped, else byte-exact
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage // nil if none
	Digest       string          // sha256 hex of the pinned definition
	Origin       Origin
	Code         *Script // set for tools that run in a sandbox
	Manifest     Manifest
	Status       ToolStatus
	StatusReason string // why it is quarantined or refused
}

// An Origin says where a tool's calls go.
type Origin struct {
	Backend    string // key of the backend: "upstream", "sandbox", "builtin"
	Server     string // configured server name, "" for the gateway's own tools
	Name       string // the tool's name at its origin
	Endpoint   string // upstream URL, or sha256 hex of the command line
	Credential string // identity of the credential used upstream, never its value
}

// A ToolStatus says whether a tool may be called.
type ToolStatus string

// The statuses of a tool.
const (
	ToolActive      ToolStatus = "active"
	ToolQuarantined ToolStatus = "quarantined" // its definition changed or is malformed
)

// A Script is what a sandbox runs for a tool.
type Script struct {
	Language string // "python", "javascript", "shell"
	Source   string // "" means the caller's "code" argument
}

// Limits bound one run. Zero means the default.
type Limits struct {
	Timeout   time.Duration `json:"timeout"`
	Memory    int64         `json:"memory"`    // bytes
	Processes int           `json:"processes"` // tasks
	Disk      int64         `json:"disk"`      // bytes of writable tmpfs
	Output    int64         `json:"output"`    // bytes of stdout and of stderr each
	CPUs      float64       `json:"cpus"`
}

// Or returns l with each zero field taken from d.
func (l Limits) Or(d Limits) Limits {
	return Limits{
		Timeout: cmp.Or(l.Timeout, d.Timeout), Memory: cmp.Or(l.Memory, d.Memory), Processes: cmp.Or(l.Processes, d.Processes),
		Disk: cmp.Or(l.Disk, d.Disk), Output: cmp.Or(l.Output, d.Output), CPUs: cmp.Or(l.CPUs, d.CPUs),
	}
}

// DefaultLimits are the limits of a tool that names none.
func DefaultLimits() Limits {
	return Limits{
		Timeout: 30 * time.Second, Memory: 512 << 20, Processes: 64,
		Disk: 64 << 20, Output: 1 << 20, CPUs: 1,
	}
}

// A Manifest is what the operator says about a tool. Nothing in it comes from
// an upstream.
type Manifest struct {
	Risk       *Level        // declared minimum risk, nil if none
	ReadOnly   bool          // the operator vouches that the tool changes nothing
	Fields     []RiskField   // where the arguments carry something to analyse
	Trust      string        // "agent" (default), "untrusted", "light"
	Tiers      []string      // tiers a caller may choose; the first is the default
	Limits     Limits        // caps; a caller may only tighten
	Egress     []string      // host:port allowed
	Secrets    []SecretGrant // scoped to this tool
	Timeout    time.Duration // of an upstream call, 0 = default
	Deprecated *Deprecation
	Compensate *Compensation
}

// A RiskField names a part of the arguments that carries an effect.
type RiskField struct {
	Path    string // JSON Pointer into the arguments, e.g. "/sql"
	Kind    string // "sql", "shell", "http_method", "url", "path", "amount", "recipient"
	Dialect string // for sql: "postgres", "sqlite", "mysql"
}

// A SecretGrant lets a tool use one stored secret under a name.
type SecretGrant struct {
	Name string // in the secret store
	Env  string // environment variable inside the sandbox or the upstream's process
}

// A Deprecation says until when a tool can still be called and what to use instead.
type Deprecation struct{ Since, Until, Use string }

// A Compensation names the tool that undoes this one.
type Compensation struct {
	Tool string
	Args json.RawMessage
}
