package sallyport

import (
	"cmp"
	"encoding/json"
	"time"
)

// The tiers: kinds of sandboxes, named alike in manifests, policies and records.
const (
	TierMicroVM = "microvm" // a virtual machine with a kernel of its own
	TierGVisor  = "gvisor"  // a kernel in user space
	TierIsolate = "isolate" // a V8 isolate: JavaScript and Wasm modules
	TierWasm    = "wasm"    // a WASI module
)

// Tiers are the names of all tiers.
func Tiers() []string { return []string{TierGVisor, TierMicroVM, TierIsolate, TierWasm} }

// A Tool is one callable thing, as the catalogue holds it, or one thing to read,
// which takes the same path.
type Tool struct {
	Shelf        Shelf           // of a thing to read; "" for a tool
	Name         string          // exposed name, at most 48 characters of [A-Za-z0-9_-]; the exposed address of a resource or template
	Alias        string          // that a profile shows it by, "" if it has none; nothing is decided by it
	Fixed        json.RawMessage // arguments that a profile gives, a canonical object; nil if callers give all of them
	Stands       int             // of the tool that searches: it stands for the tools of servers in a list with more of them
	Version      string          // the manifest's, or "1"
	Description  string          // for people; Definition is what agents see
	Definition   json.RawMessage // the listed object, with Name already mapped, else byte-exact
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage // nil if none
	Digest       string          // sha256 hex of the pinned definition
	Origin       Origin
	Code         *Script // set for tools that run in a sandbox
	Route        *Route  // set for operations of an HTTP API
	ByTask       bool    // its server takes calls of it only as tasks (revision 2025-11-25)
	Manifest     Manifest
	Status       ToolStatus
	StatusReason string   // why it is quarantined or retired
	Remarks      []string // for operators: what to be wary of though it may be called
}

// An Origin says where a tool's calls go.
type Origin struct {
	Backend    string // key of the backend: "upstream", "openapi", "sandbox", "builtin"
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
	ToolQuarantined ToolStatus = "quarantined" // its definition changed, is malformed, or a human should look at it first
	ToolRetired     ToolStatus = "retired"     // it was deprecated, and its last day is over
)

// A Script is what a sandbox runs for a tool.
type Script struct {
	Language string // "python", "javascript", "shell", "wasm"
	Source   string // "" means the caller's "code" argument; of wasm, what pins the module: sha256:HEX, or an artifact, REPOSITORY@sha256:HEX
	File     string // where the module lies, of one that is a file
}

// MaxModule bounds a module of language wasm, in bytes.
const MaxModule = 64 << 20

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
	Trust      string        // "agent" (default), "untrusted", "light": how weak a tier may be
	Tier       string        // that it runs in, "" or "auto": by the table of package tier/choose
	Tiers      []string      // tiers that it may run in, and a caller may choose, what it wants first
	GPU        bool          // it needs the host's GPUs
	Image      string        // that its code runs in, by name or digest; "" is the default
	Images     Images        // that a caller may choose
	Limits     Limits        // caps; a caller may only tighten
	Egress     []string      // host:port allowed
	Secrets    []SecretGrant // scoped to this tool
	Timeout    time.Duration // of an upstream call, 0 = default
	Untrusted  bool          // what it returns was written by strangers: wrapped, and its reader is tainted
	MayReceive []string      // "secrets": arguments may hold them
	Deprecated *Deprecation
	Compensate *Compensation
	Dedupe     time.Duration // an identical call without a key within it is a repetition, 0 = never
	Witness    []Witness     // looks at the target, taken for a ticket and again before it is used
	Estimate   *Estimate     // how the database is asked how many rows a statement would touch, nil if it is not
}

// An Estimate names the tool of the same server that takes the question how
// many rows the SQL of a call would touch. Its answer is shown in a ticket.
type Estimate struct {
	Tool     string          // exposed name; must be read-only, as this gateway judges the question
	Argument string          // its argument that carries SQL
	Args     json.RawMessage // an object of its other arguments, as of a Witness, nil for none
}

// Images are the digests of images, by the names under which a caller may choose
// one.
type Images map[string]string

// A Witness says how to look at what a call is about: by which read-only tool,
// with which arguments, and which part of its answer counts.
type Witness struct {
	Name   string
	Tool   string          // exposed name; must be read-only for this gateway
	Args   json.RawMessage // an object; {"$arg": "/path"} stands for that argument of the call
	Select string          // JSON Pointer into the tool's result, "" for all of it
	Binds  string          // JSON Pointer of the call's argument whose content is seen here, or ""
}

// A RiskField names a part of the arguments that carries an effect.
type RiskField struct {
	Path       string // JSON Pointer into the arguments, e.g. "/sql"; * stands for every element of a list
	Kind       string // one of RiskKinds()
	Dialect    string // for sql: "postgres", "sqlite", "mysql"
	Effect     string // for path: "reads", "creates", "appends", "writes", "overwrites", "deletes", "" if nothing is said
	Reversible bool   // for amount: the money can be called back, so moving it is not irreversible
	Scale      int    // for amount: decimal places that it leaves out, 2 for cents
}

// RiskKinds are what a part of the arguments can be.
func RiskKinds() []string {
	return []string{
		"sql", "shell", "path", "reference", "inert",
		"http_method", "url", "http_headers", "http_body",
		"cloud", "kubernetes", "kubernetes_verb", "kubernetes_resource",
		"amount", "currency", "account",
		"recipient", "subject", "body", "attachment",
	}
}

// A SecretGrant lets a tool use one stored secret: as an environment variable,
// or, better, as a header of its requests to one host, where the value never
// enters the sandbox.
type SecretGrant struct {
	Name   string // in the secret store
	Env    string // environment variable inside the sandbox; "" if Header is set
	Header string // of requests to Host, set by the egress broker
	Prefix string // before the value in Header, e.g. "Bearer "
	Host   string // host:port, one of the tool's egress list
}

// A Deprecation says until when a tool can still be called and what to use
// instead. Its days are YYYY-MM-DD by UTC, or "".
type Deprecation struct {
	Since string
	Until string // the last day on which it can be called, "" for no end
	Use   string // exposed name of another tool, "" if there is none
}

// String says it to whoever uses the tool.
func (d Deprecation) String() string {
	said := "deprecated"
	if d.Since != "" {
		said += " since " + d.Since
	}
	if d.Until != "" {
		said += ", can be called until " + d.Until
	}
	if d.Use != "" {
		said += "; use " + d.Use
	}
	return said
}

// A Compensation names the tool that undoes this one.
type Compensation struct {
	Tool       string
	Args       json.RawMessage // may refer to the call: {"$ref": "arguments.path"}, {"$ref": "result.structuredContent.id"}
	Idempotent bool            // undoing twice, or what never happened, does no harm
}
