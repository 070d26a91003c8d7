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
	"time"

	"sallyport.dev/sallyport"
)

// A Config is sallyport.yaml. The comments give each key's default, which
// Default returns. Paths in a loaded Config are absolute, except those that
// are empty.
type Config struct {
	// File is the absolute path that it was read from, "" for Default.
	File string `yaml:"-"`

	Listen   string             `yaml:"listen"`   // HOST:PORT of the agents' door: 127.0.0.1:7450
	Hosts    []string           `yaml:"hosts"`    // names in the Host header beside loopback ones: none
	Origins  []string           `yaml:"origins"`  // web pages that may talk to the gateway, https://HOST[:PORT]: none
	Data     string             `yaml:"data"`     // the data folder: "", which means the one given to the program
	Store    string             `yaml:"store"`    // sqlite, or a URL postgres://…: sqlite
	Agents   map[string]Agent   `yaml:"agents"`   // beside those in the database: none
	Servers  map[string]Server  `yaml:"servers"`  // beside those in the database: none
	Profiles map[string]Profile `yaml:"profiles"` // subsets of the tools at /mcp/NAME: none
	Policies string             `yaml:"policies"` // folder of *.cedar: policies
	Tools    string             `yaml:"tools"`    // folder of tool manifests: tools

	Sandbox   Sandbox   `yaml:"sandbox"`
	Egress    Egress    `yaml:"egress"`
	Secrets   Secrets   `yaml:"secrets"`
	Approvals Approvals `yaml:"approvals"`
	Limits    Limits    `yaml:"limits"`
	Redact    Redact    `yaml:"redact"`
	Audit     Audit     `yaml:"audit"`
	Telemetry Telemetry `yaml:"telemetry"`
}

// An Agent is a caller that the file declares.
type Agent struct {
	Roles     []string `yaml:"roles"`     // for policies: none
	Suspended bool     `yaml:"suspended"` // false
}

// Isolation of a server's process.
const (
	IsolationUID    = "uid"    // a user of its own
	IsolationGVisor = "gvisor" // a service sandbox
	IsolationNone   = "none"   // the gateway's own user: shown by doctor, marked in the audit
)

// A Server is an upstream MCP server: either Command or URL is set.
type Server struct {
	Command   string            `yaml:"command"`   // program, without a shell
	Args      []string          `yaml:"args,text"` // its arguments: none
	Env       map[string]string `yaml:"env,text"`  // added to a small base environment: none; may hold ${secret:NAME}
	Isolation string            `yaml:"isolation"` // uid
	Egress    []string          `yaml:"egress"`    // host:port that the process may reach: none

	URL     string            `yaml:"url"`          // streamable HTTP endpoint
	Headers map[string]string `yaml:"headers,text"` // sent with each request: none; may hold ${secret:NAME}

	Timeout time.Duration `yaml:"timeout"`  // of one call: 60s
	MaxLine Size          `yaml:"max_line"` // longest message: 16MiB
}

// A Profile is a named subset of the tools.
type Profile struct {
	Servers []string `yaml:"servers"` // every tool of these servers
	Tools   []string `yaml:"tools"`   // exposed names; a * at the end means "begins with"
}

// Sandbox says where code runs.
type Sandbox struct {
	Host   string        `yaml:"host"`   // unix socket or HOST:PORT of a sandbox host: "", a local one that serve starts
	Image  string        `yaml:"image"`  // default image: default
	Runs   int           `yaml:"runs"`   // sandboxes at once: 16
	Limits SandboxLimits `yaml:"limits"` // of a tool that names none
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
	Private []string `yaml:"private"` // CIDR ranges of private networks that are allowed: none
}

// Secrets say where the keys are.
type Secrets struct {
	Keys string `yaml:"keys"` // folder of the key files: "", keys in the data folder
}

// Approvals set the clocks of tickets.
type Approvals struct {
	Wait     time.Duration `yaml:"wait"`      // how long a door waits for a human before it answers approval_pending: 5m
	DecideBy time.Duration `yaml:"decide_by"` // after which an undecided ticket has expired: 1h
	RunBy    time.Duration `yaml:"run_by"`    // after which an approval that was not used is void: 15m
}

// Limits bound what one principal may ask for at once.
type Limits struct {
	Rate        float64 `yaml:"rate"`        // calls per second: 100
	Burst       int     `yaml:"burst"`       // calls at once: 200
	Bytes       Size    `yaml:"bytes"`       // per second: 32MiB
	Body        Size    `yaml:"body"`        // of one request: 4MiB
	Concurrency int     `yaml:"concurrency"` // calls in flight of one principal: 64
	Total       int     `yaml:"total"`       // calls in flight of all: 4096
}

// Redact says what is cleaned out of results. Secrets always are.
type Redact struct {
	MaxBytes Size     `yaml:"max_bytes"` // of one result, at least 4KiB: 1MiB
	PII      []string `yaml:"pii"`       // of card, ssn, email: card, ssn
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
	DefaultIsolation = IsolationUID
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
		Sandbox: Sandbox{Image: "default", Runs: 16, Limits: SandboxLimits{
			Timeout: l.Timeout, Memory: Size(l.Memory), Processes: l.Processes,
			Disk: Size(l.Disk), Output: Size(l.Output), CPUs: l.CPUs,
		}},
		Approvals: Approvals{Wait: 5 * time.Minute, DecideBy: time.Hour, RunBy: 15 * time.Minute},
		Limits:    Limits{Rate: 100, Burst: 200, Bytes: 32 * MiB, Body: 4 * MiB, Concurrency: 64, Total: 4096},
		Redact:    Redact{MaxBytes: 1 * MiB, PII: []string{"card", "ssn"}},
		Telemetry: Telemetry{Sample: 1, Metrics: true, Log: "info"},
	}
}

func defaultServer() Server {
	return Server{Timeout: DefaultTimeout, MaxLine: DefaultMaxLine}
}

// ProfileTools returns what each profile holds, as exposed names and
// beginnings of names with a * at the end.
func (c *Config) ProfileTools() map[string][]string {
	out := make(map[string][]string, len(c.Profiles))
	for name, p := range c.Profiles {
		tools := make([]string, 0, len(p.Servers)+len(p.Tools))
		for _, s := range p.Servers {
			tools = append(tools, s+"__*")
		}
		out[name] = append(tools, p.Tools...)
	}
	return out
}
