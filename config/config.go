// Package config reads sallyport.yaml: strictly, whole or not at all. Unknown
// and duplicate keys, wrong types, bad references and bad values are refused
// with file, line, column, what is wrong and what to do. Nothing is ever
// replaced by a default because it could not be read.
//
// References to secrets, written ${secret:NAME} in env and headers of servers,
// are checked for their form and kept as they are; they are resolved where the
// value is used.
package config

import (
	"cmp"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// A Config is sallyport.yaml. The comments give each key's default, which
// Default returns. Paths in a loaded Config are absolute, except those that
// are empty.
type Config struct {
	// File is the absolute path that it was read from, "" for Default.
	File string `yaml:"-"`

	places map[string]pos `yaml:"-"` // of what was set, by path

	Listen    string             `yaml:"listen"`    // HOST:PORT of the agents' door: 127.0.0.1:7450
	Advertise string             `yaml:"advertise"` // HOST:PORT where the other gateways of the database reach this one: "", which is listen if that names a host
	Hosts     []string           `yaml:"hosts"`     // names in the Host header beside loopback ones: none
	Origins   []string           `yaml:"origins"`   // web pages that may talk to the gateway, https://HOST[:PORT]: none
	Data      string             `yaml:"data"`      // the data folder: "", which means the one given to the program
	Store     string             `yaml:"store"`     // sqlite, or a URL postgres://…, in which relative files are made absolute: sqlite
	Agents    map[string]Agent   `yaml:"agents"`    // beside those in the database: none
	Servers   map[string]Server  `yaml:"servers"`   // beside those in the database: none
	Profiles  map[string]Profile `yaml:"profiles"`  // subsets of the tools at /mcp/NAME: none
	Policies  string             `yaml:"policies"`  // folder of *.cedar: policies
	Tools     string             `yaml:"tools"`     // folder of tool manifests: tools

	URL       string            `yaml:"url"`       // the gateway's origin behind a reverse proxy, https://HOST[:PORT]: "", none
	Proxies   []string          `yaml:"proxies"`   // CIDR ranges of proxies whose X-Forwarded-Proto, -Host and -Prefix are believed: none
	Endpoints map[string]string `yaml:"endpoints"` // profile by the URL of an MCP endpoint behind a proxy, "" for the default one: none

	Sandbox     Sandbox     `yaml:"sandbox"`
	Idempotency Idempotency `yaml:"idempotency"`
	Egress      Egress      `yaml:"egress"`
	Secrets     Secrets     `yaml:"secrets"`
	Approvals   Approvals   `yaml:"approvals"`
	Sagas       Sagas       `yaml:"sagas"`
	Limits      Limits      `yaml:"limits"`
	Redact      Redact      `yaml:"redact"`
	Messages    Messages    `yaml:"messages"`
	Audit       Audit       `yaml:"audit"`
	Telemetry   Telemetry   `yaml:"telemetry"`
}

// An Agent is a caller that the file declares.
type Agent struct {
	Roles     []string `yaml:"roles"`     // for policies: none
	Suspended bool     `yaml:"suspended"` // false
}

// Isolation of a server's process.
const (
	IsolationUID    = "uid"    // a user of its own
	IsolationGVisor = "gvisor" // a sandbox that lives as long as the server
	IsolationNone   = "none"   // the gateway's own user: shown by doctor, marked in the audit
)

// A Server is an upstream: an MCP server, of which Command or URL is set, or an
// HTTP API, of which OpenAPI is.
type Server struct {
	Command   string            `yaml:"command"`   // program, without a shell
	Args      []string          `yaml:"args,text"` // its arguments: none
	Env       map[string]string `yaml:"env,text"`  // added to a small base environment: none; may hold ${secret:NAME}
	Isolation string            `yaml:"isolation"` // gvisor

	// Of a server in gvisor only:
	Egress  []string       `yaml:"egress"`  // host:port that it may reach: none
	Secrets []ServerSecret `yaml:"secrets"` // that the egress broker adds to its requests: none
	Roots   []Root         `yaml:"roots"`   // folders of the host that it sees: none
	Limits  ServerLimits   `yaml:"limits"`
	Idle    time.Duration  `yaml:"idle"` // of any program: without calls for so long, it is stopped until the next one: 0s, never

	Processes string `yaml:"processes"` // of any program, one or each: each, what it keeps in memory is its caller's

	URL     string            `yaml:"url"`          // streamable HTTP endpoint
	Headers map[string]string `yaml:"headers,text"` // sent with each request: none; may hold ${secret:NAME}
	OAuth   OAuth             `yaml:"oauth"`        // how the gateway is authorised there: not at all

	OpenAPI  string            `yaml:"openapi"`   // file or URL of the OpenAPI 3 document of an HTTP API
	Base     string            `yaml:"base"`      // where its calls go: "", what the document says
	Auth     map[string]string `yaml:"auth,text"` // credentials by security scheme of the document: none; may hold ${secret:NAME}
	TokenURL string            `yaml:"token_url"` // where tokens of OAuth are fetched: "", at the API's own origin only

	Timeout time.Duration `yaml:"timeout"`  // of one call: 60s
	MaxLine Size          `yaml:"max_line"` // longest message: 16MiB
	Calls   int           `yaml:"calls"`    // at once: 0, which is 64
	Queue   int           `yaml:"queue"`    // calls that may wait for one of those, more are told to come back: 0, which is 256
	Wait    time.Duration `yaml:"wait"`     // of a call for one of those, before it is told to come back: 0s, which is 30s
}

// How many processes a program is, where it is said.
const (
	ProcessesEach = "each" // one for each caller
	ProcessesOne  = "one"  // which all callers share
)

// A Root is a folder of the host that a server sees, at the same path.
type Root struct {
	Path     string `yaml:"path"`
	ReadOnly bool   `yaml:"read_only"` // true
}

// A ServerSecret is added to requests to one host, outside of the sandbox.
type ServerSecret struct {
	Name   string `yaml:"name"`   // in the secret store
	Header string `yaml:"header"` // of requests to host
	Prefix string `yaml:"prefix"` // before the value, e.g. "Bearer ": ""
	Host   string `yaml:"host"`   // host:port, one of egress
}

// ServerLimits bound a server in a sandbox. There is no limit of time. Zero is
// the default.
type ServerLimits struct {
	Memory    Size    `yaml:"memory"`    // 512MiB
	Processes int     `yaml:"processes"` // 128
	Disk      Size    `yaml:"disk"`      // of temporary files, in memory: 64MiB
	CPUs      float64 `yaml:"cpus"`      // 1
	State     Size    `yaml:"state"`     // of its own folder, which outlives it: 256MiB
}

// Confinement returns what the server may use in the vocabulary of the path,
// without the values of secrets.
func (s Server) Confinement() sallyport.Confinement {
	c := sallyport.Confinement{Egress: s.Egress, State: int64(s.Limits.State), Limits: sallyport.Limits{
		Memory: int64(s.Limits.Memory), Processes: s.Limits.Processes, Disk: int64(s.Limits.Disk), CPUs: s.Limits.CPUs,
	}}
	for _, r := range s.Roots {
		c.Roots = append(c.Roots, sallyport.Root{Path: r.Path, Writable: !r.ReadOnly})
	}
	for _, v := range s.Secrets {
		c.Inject = append(c.Inject, sallyport.Injected{SecretGrant: sallyport.SecretGrant{Name: v.Name, Header: v.Header, Prefix: v.Prefix, Host: v.Host}})
	}
	return c
}

// Sandbox says where code runs.
type Sandbox struct {
	Host   string        `yaml:"host"`   // unix socket or HOST:PORT of a sandbox host: "", a local one that serve starts
	Image  string        `yaml:"image"`  // default image: default
	Images []string      `yaml:"images"` // others that a call of a built-in tool may choose as its image: none
	Tiers  []string      `yaml:"tiers"`  // that a host which serve starts may open, of gvisor, microvm, isolate, wasm: all that can run
	Runs   int           `yaml:"runs"`   // sandboxes at once: 16
	Queue  int           `yaml:"queue"`  // runs that may wait for one of those to end: 64
	Warm   int           `yaml:"warm"`   // started sandboxes that may wait for the next call of their kind, about 30 MB each: 4, 0 for none
	Limits SandboxLimits `yaml:"limits"` // of a tool that names none

	Sessions Sessions `yaml:"sessions"` // sandboxes that stay
}

// Sessions bound the sandboxes that stay between calls.
type Sessions struct {
	Count    int           `yaml:"count"`     // at once: 16, 0 for none
	PerAgent int           `yaml:"per_agent"` // of one agent at once: 4
	Rest     time.Duration `yaml:"rest"`      // without a call, after which the memory of one goes to an encrypted file: 1m, 0 for never
	Idle     time.Duration `yaml:"idle"`      // without a call, after which one ends: 10m
	Life     time.Duration `yaml:"life"`      // after which one ends in any case: 8h
}

// SandboxLimits bound one run.
type SandboxLimits struct {
	Timeout   time.Duration `yaml:"timeout"`   // 30s
	Memory    Size          `yaml:"memory"`    // 512MiB
	Processes int           `yaml:"processes"` // 64
	Disk      Size          `yaml:"disk"`      // 64MiB
	Output    Size          `yaml:"output"`    // of stdout and of stderr each: 1MiB
	CPUs      float64       `yaml:"cpus"`      // 1
}

// Limits returns the same bounds in the vocabulary of the path.
func (l SandboxLimits) Limits() sallyport.Limits {
	return sallyport.Limits{
		Timeout: l.Timeout, Memory: int64(l.Memory), Processes: l.Processes,
		Disk: int64(l.Disk), Output: int64(l.Output), CPUs: l.CPUs,
	}
}

// Egress says what the broker may reach beyond public addresses.
type Egress struct {
	Private []string `yaml:"private"` // CIDR ranges of private networks that are allowed, to HTTP APIs and to the sandboxes of a host that serve starts: none
}

// Secrets say where the keys are.
type Secrets struct {
	Keys string `yaml:"keys"` // folder of the key files: "", keys in the data folder
}

// Approvals set the clocks of tickets, who may be asked for how much, and how.
type Approvals struct {
	Wait         time.Duration `yaml:"wait"`         // how long a door waits for a human before it answers approval_pending: 5m
	DecideBy     time.Duration `yaml:"decide_by"`    // after which an undecided ticket has expired: 1h
	RunBy        time.Duration `yaml:"run_by"`       // after which an approval that was not used is void: 15m
	Cooldown     time.Duration `yaml:"cooldown"`     // after a rejection, in which nothing similar may be asked, 0s for none: 5m
	PerAgent     int           `yaml:"per_agent"`    // tickets of one agent that may wait at once: 20
	PerTenant    int           `yaml:"per_tenant"`   // tickets of all agents that may wait at once: 500
	Irreversible Approvers     `yaml:"irreversible"` // of calls that cannot be undone, beside what policies demand
	Escalate     Escalate      `yaml:"escalate"`     // where nobody decides

	URL      string             `yaml:"url"`      // where approvers' browsers reach the gateway: "", http://localhost:PORT where it listens on loopback
	Passkeys string             `yaml:"passkeys"` // to approve what cannot be undone: off, enrolled (by whoever has one) or required: enrolled
	Webhooks map[string]Webhook `yaml:"webhooks"` // tools that are told, and may decide: none
}

// Approvers say whose word is needed.
type Approvers struct {
	Groups []string `yaml:"groups"` // groups of admins: none, any admin
	Quorum int      `yaml:"quorum"` // how many different ones: 1
}

// Escalate calls others in.
type Escalate struct {
	After  time.Duration `yaml:"after"`  // since the ticket was opened: 0s, never
	Groups []string      `yaml:"groups"` // who may decide, too, from then on: none
}

// Sagas set how sequences of calls are driven.
type Sagas struct {
	Plans       string        `yaml:"plans"`       // folder of plans that agents may start by name: sagas
	OpenFor     time.Duration `yaml:"open_for"`    // after which an ad-hoc saga that nobody ended is ended: 15m
	OnTimeout   string        `yaml:"on_timeout"`  // what then: rollback, or park it for a human: rollback
	Lease       time.Duration `yaml:"lease"`       // after which a silent gateway's sagas are taken over by another: 30s
	Concurrency int           `yaml:"concurrency"` // sagas driven at once: 16
}

// Limits bound what one principal may ask for at once.
type Limits struct {
	Rate        float64 `yaml:"rate"`        // calls per second: 100
	Burst       int     `yaml:"burst"`       // calls at once: 200
	Bytes       Size    `yaml:"bytes"`       // per second: 32MiB
	Body        Size    `yaml:"body"`        // of one request: 4MiB
	Concurrency int     `yaml:"concurrency"` // calls in flight of one principal: 64
	Total       int     `yaml:"total"`       // calls in flight of all: 4096

	Answer time.Duration `yaml:"answer"` // for a client to answer what a server asks in the middle of a call: 10m
	Task   time.Duration `yaml:"task"`   // after which a call of a client that takes tasks becomes one: 10s
	Tenant TenantLimits  `yaml:"tenant"` // of all agents together, at every gateway of the database

	Windows []Window `yaml:"windows"` // sums of money that need a human: none
	Quotas  []Quota  `yaml:"quotas"`  // counts of calls that may change something: none
}

// TenantLimits bound what all agents do together. Zero is no bound.
type TenantLimits struct {
	Rate        float64 `yaml:"rate"`        // calls per second: 0
	Burst       int     `yaml:"burst"`       // calls at once: 0, as many as rate
	Concurrency int     `yaml:"concurrency"` // calls in flight: 0
}

// A Window is a sum that needs a human, over a span of time.
type Window struct {
	Tool     string        `yaml:"tool"`       // exposed name, a * at the end means "begins with": every tool
	Currency string        `yaml:"currency"`   // such as EUR: "", amounts of all currencies as if they were one
	Limit    string        `yaml:"limit,text"` // a decimal
	Per      time.Duration `yaml:"per"`        // 24h, at most 744h
	By       string        `yaml:"by"`         // principal, recipient or tenant: principal
}

// A Quota bounds the calls of one agent that may change something.
type Quota struct {
	Tool  string        `yaml:"tool"`  // as in Window: every tool
	Agent string        `yaml:"agent"` // "", each agent, counted by itself
	Calls int           `yaml:"calls"` // at least 1
	Per   time.Duration `yaml:"per"`   // 24h, at most 744h
}

// Idempotency says what is remembered of calls, so that a repetition is harmless.
type Idempotency struct {
	Retention time.Duration `yaml:"retention"` // how long a finished call's key is remembered: 168h
	Open      int           `yaml:"open"`      // calls of one agent that run, wait for a human or are of unknown outcome: 1000
	Outputs   Size          `yaml:"outputs"`   // results kept for one agent; the oldest make room: 64MiB
	Lease     time.Duration `yaml:"lease"`     // beyond its timeout, after which a call without an outcome is unknown: 1m
	Wait      time.Duration `yaml:"wait"`      // how long a repetition waits for the first call: 10s
}

// Redact says what is cleaned out of results, where secrets always are, and what
// becomes of secrets in arguments and of agents that read what strangers wrote.
type Redact struct {
	MaxBytes Size          `yaml:"max_bytes"` // of one result, at least 4KiB: 1MiB
	PII      []string      `yaml:"pii"`       // of card, ssn, email: card, ssn
	Images   []string      `yaml:"images"`    // hosts whose images clients may load because of a result, *.NAME for those below, * for all: none
	Outbound string        `yaml:"outbound"`  // a call whose arguments would carry a secret out: approve, deny or off: approve
	Taint    time.Duration `yaml:"taint"`     // how long an agent needs a human for more, after it read what strangers wrote; 0s means never: 30m
}

// What becomes of calls with secrets in their arguments.
const (
	OutboundApprove = "approve" // a human decides
	OutboundDeny    = "deny"
	OutboundOff     = "off" // nobody looks
)

// Messages say what a message's recipients are to the organisation.
type Messages struct {
	Internal []string `yaml:"internal"` // mail domains of its own, and all below them: none, so that everybody is outside
}

// Audit says how records are kept.
type Audit struct {
	Strict bool   `yaml:"strict"` // every record durable before the answer: false
	Heads  string `yaml:"heads"`  // second place for the signed heads, a file elsewhere: "", beside the keys
}

// Telemetry says what is told about the gateway itself.
type Telemetry struct {
	Endpoint string  `yaml:"endpoint"` // OTLP over HTTP: "", none
	Sample   float64 `yaml:"sample"`   // share of calls that are traced, 0 to 1: 1
	Metrics  bool    `yaml:"metrics"`  // serve /metrics: true
	Log      string  `yaml:"log"`      // debug, info, warn or error: info
}

// The defaults of a server.
const (
	DefaultIsolation = IsolationGVisor
	DefaultTimeout   = 60 * time.Second
	DefaultMaxLine   = 16 * MiB
)

// Default returns the configuration of an empty world: no agents, no servers,
// and paths relative to the data folder.
func Default() *Config {
	l := sallyport.DefaultLimits()
	return &Config{
		Listen: "127.0.0.1:7450", Store: "sqlite", Policies: "policies", Tools: "tools",
		Agents: map[string]Agent{}, Servers: map[string]Server{}, Profiles: map[string]Profile{},
		Sandbox: Sandbox{Image: "default", Runs: 16, Queue: 64, Warm: 4, Limits: SandboxLimits{
			Timeout: l.Timeout, Memory: Size(l.Memory), Processes: l.Processes,
			Disk: Size(l.Disk), Output: Size(l.Output), CPUs: l.CPUs,
		}, Sessions: Sessions{Count: 16, PerAgent: 4, Rest: time.Minute, Idle: 10 * time.Minute, Life: 8 * time.Hour}},
		Approvals: Approvals{Wait: 5 * time.Minute, DecideBy: time.Hour, RunBy: 15 * time.Minute, Cooldown: 5 * time.Minute,
			PerAgent: 20, PerTenant: 500, Irreversible: Approvers{Quorum: 1}, Passkeys: PasskeysEnrolled, Webhooks: map[string]Webhook{}},
		Sagas:       Sagas{Plans: "sagas", OpenFor: 15 * time.Minute, OnTimeout: "rollback", Lease: 30 * time.Second, Concurrency: 16},
		Limits:      Limits{Rate: 100, Burst: 200, Bytes: 32 * MiB, Body: 4 * MiB, Concurrency: 64, Total: 4096, Answer: 10 * time.Minute, Task: 10 * time.Second},
		Idempotency: Idempotency{Retention: 7 * 24 * time.Hour, Open: 1000, Outputs: 64 * MiB, Lease: time.Minute, Wait: 10 * time.Second},
		Redact:      Redact{MaxBytes: 1 * MiB, PII: []string{"card", "ssn"}, Outbound: OutboundApprove, Taint: 30 * time.Minute},
		Telemetry:   Telemetry{Sample: 1, Metrics: true, Log: "info"},
	}
}

func defaultServer() Server {
	return Server{Timeout: DefaultTimeout, MaxLine: DefaultMaxLine}
}

// Vocabulary returns the windows and quotas in the vocabulary of the path.
func (l Limits) Vocabulary() (windows []sallyport.Window, quotas []sallyport.Quota) {
	for _, w := range l.Windows {
		windows = append(windows, sallyport.Window{
			Tool: w.Tool, Currency: strings.ToUpper(w.Currency), Limit: w.Limit, Per: cmp.Or(w.Per, day), By: cmp.Or(w.By, sallyport.ByPrincipal),
		})
	}
	for _, q := range l.Quotas {
		quotas = append(quotas, sallyport.Quota{Tool: q.Tool, Agent: q.Agent, Calls: q.Calls, Per: cmp.Or(q.Per, day)})
	}
	return windows, quotas
}

const day = 24 * time.Hour
