package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/config"
)

const file = "/etc/sallyport/sallyport.yaml"

func TestEverything(t *testing.T) {
	c, err := config.Parse(file, []byte(`
listen: "[::1]:0"
advertise: "10.0.0.7:7450"
data: ../data
store: postgres://app@db/sallyport
agents:
  reporter: {roles: [reader, writer]}
  old:
    suspended: true
servers:
  files:
    command: ./bin/files
    args: [-v, 8080, "a b", true]
    env: {PORT: 08080}
    isolation: gvisor
    egress: [api.example:443, "*.example.org:443", "10.1.2.3:80"]
    timeout: 1m30s
    max_line: 1MiB
  web: {url: "https://mcp.example/mcp?x=1", headers: {Authorization: "Bearer ${secret:web}"}}
profiles:
  support: {servers: [web], tools: [files__read, run_*]}
policies: /srv/policies
tools: t
sandbox: {host: ./sandboxd.sock, image: python, runs: 2, queue: 7, warm: 3, limits: {timeout: 5s, memory: 1GiB, processes: 8, disk: 2MiB, output: 64KiB, cpus: 0.5}, sessions: {count: 5, per_agent: 2, rest: 0s, idle: 1m, life: 1h}}
egress: {private: [10.1.0.0/16, "fd00::/8"]}
secrets: {keys: k}
approvals: {wait: 0s, decide_by: 2h, run_by: 1m, cooldown: 1m, per_agent: 3, per_tenant: 9, irreversible: {groups: [finance, security], quorum: 2}, escalate: {after: 1h, groups: [board]}}
sagas: {plans: p, open_for: 1m, on_timeout: park, lease: 5s, concurrency: 2}
limits:
  rate: 2.5
  burst: 5
  bytes: 1MB
  body: 64KiB
  concurrency: 3
  total: 9
  answer: 90s
  task: 3s
  windows: [{currency: eur, limit: 1000.50, per: 1h, by: recipient, tool: "bank__*"}, {limit: "7"}]
  quotas: [{tool: mail__send, agent: old, calls: 5, per: 1m}, {calls: 9}]
idempotency: {retention: 24h, open: 7, outputs: 1MiB, lease: 2s, wait: 3s}
redact: {max_bytes: 8KiB, pii: [], outbound: deny, taint: 0s}
messages: {internal: [example.com, xn--bcher-kva.example]}
audit: {strict: true, heads: heads}
telemetry: {endpoint: "http://127.0.0.1:4318", sample: 0, metrics: false, log: debug}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		File: file, Listen: "[::1]:0", Advertise: "10.0.0.7:7450", Data: "/etc/data", Store: "postgres://app@db/sallyport",
		Agents: map[string]config.Agent{"reporter": {Roles: []string{"reader", "writer"}}, "old": {Suspended: true}},
		Servers: map[string]config.Server{
			"files": {
				Command: "/etc/sallyport/bin/files", Args: []string{"-v", "8080", "a b", "true"}, Env: map[string]string{"PORT": "08080"},
				Isolation: "gvisor", Egress: []string{"api.example:443", "*.example.org:443", "10.1.2.3:80"},
				Timeout: 90 * time.Second, MaxLine: config.MiB,
			},
			"web": {
				URL: "https://mcp.example/mcp?x=1", Headers: map[string]string{"Authorization": "Bearer ${secret:web}"},
				Timeout: config.DefaultTimeout, MaxLine: config.DefaultMaxLine,
			},
		},
		Profiles: map[string]config.Profile{"support": {Servers: []string{"web"}, Tools: []string{"files__read", "run_*"}, SearchAbove: 40}},
		Policies: "/srv/policies", Tools: "/etc/sallyport/t",
		Sandbox: config.Sandbox{Host: "/etc/sallyport/sandboxd.sock", Image: "python", Runs: 2, Queue: 7, Warm: 3, Limits: config.SandboxLimits{
			Timeout: 5 * time.Second, Memory: config.GiB, Processes: 8, Disk: 2 * config.MiB, Output: 64 * config.KiB, CPUs: 0.5,
		}, Sessions: config.Sessions{Count: 5, PerAgent: 2, Idle: time.Minute, Life: time.Hour}},
		Egress: config.Egress{Private: []string{"10.1.0.0/16", "fd00::/8"}}, Secrets: config.Secrets{Keys: "/etc/sallyport/k"},
		Approvals: config.Approvals{DecideBy: 2 * time.Hour, RunBy: time.Minute, Cooldown: time.Minute, PerAgent: 3, PerTenant: 9,
			Irreversible: config.Approvers{Groups: []string{"finance", "security"}, Quorum: 2}, Escalate: config.Escalate{After: time.Hour, Groups: []string{"board"}}, Passkeys: "enrolled", Webhooks: map[string]config.Webhook{}},
		Sagas: config.Sagas{Plans: "/etc/sallyport/p", OpenFor: time.Minute, OnTimeout: "park", Lease: 5 * time.Second, Concurrency: 2},
		Limits: config.Limits{Rate: 2.5, Burst: 5, Bytes: 1e6, Body: 64 * config.KiB, Concurrency: 3, Total: 9, Answer: 90 * time.Second, Task: 3 * time.Second,
			Windows: []config.Window{{Currency: "eur", Limit: "1000.50", Per: time.Hour, By: "recipient", Tool: "bank__*"}, {Limit: "7"}},
			Quotas:  []config.Quota{{Tool: "mail__send", Agent: "old", Calls: 5, Per: time.Minute}, {Calls: 9}}},
		Idempotency: config.Idempotency{Retention: 24 * time.Hour, Open: 7, Outputs: config.MiB, Lease: 2 * time.Second, Wait: 3 * time.Second},
		Redact:      config.Redact{MaxBytes: 8 * config.KiB, PII: []string{}, Outbound: config.OutboundDeny},
		Messages:    config.Messages{Internal: []string{"example.com", "xn--bcher-kva.example"}},
		Audit:       config.Audit{Strict: true, Heads: "/etc/sallyport/heads"},
		Telemetry:   config.Telemetry{Endpoint: "http://127.0.0.1:4318", Log: "debug"},
	}
	if !reflect.DeepEqual(c.Unplaced(), want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if got := c.Shapes()["support"].Names; !reflect.DeepEqual(got, []string{"web__*", "files__read", "run_*"}) {
		t.Errorf("Shapes = %q", got)
	}
	windows, quotas := c.Limits.Vocabulary()
	if !reflect.DeepEqual(windows, []sallyport.Window{{Tool: "bank__*", Currency: "EUR", Limit: "1000.50", Per: time.Hour, By: "recipient"},
		{Limit: "7", Per: 24 * time.Hour, By: "principal"}}) || len(quotas) != 2 || quotas[1].Per != 24*time.Hour {
		t.Errorf("windows %+v, quotas %+v", windows, quotas)
	}
	if l := c.Sandbox.Limits.Limits(); l.Memory != 1<<30 || l.Timeout != 5*time.Second || l.CPUs != 0.5 {
		t.Errorf("Limits = %+v", l)
	}
}

func TestStarterIsDefault(t *testing.T) {
	c, err := config.Parse(file, []byte(config.Starter(config.Default().Store)))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.File, want.Policies, want.Tools = file, "/etc/sallyport/policies", "/etc/sallyport/tools"
	want.Sagas.Plans = "/etc/sallyport/sagas"
	if !reflect.DeepEqual(c.Unplaced(), want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	// The examples work too once the # is taken away.
	var b strings.Builder
	for line := range strings.Lines(config.Starter(config.Default().Store)) {
		if l, ok := strings.CutPrefix(line, "# "); ok && (strings.HasPrefix(l, "  ") || exampleKey(l)) {
			line = l
		}
		b.WriteString(line)
	}
	c, err = config.Parse(file, []byte(b.String()))
	if err != nil || len(c.Servers) != 3 || len(c.Profiles) != 1 || c.Audit.Heads == "" {
		t.Errorf("the examples: %+v, %v\n%s", c, err, b.String())
	}
	if c != nil && (c.Approvals.URL == "" || len(c.Approvals.Webhooks) != 1 || c.Approvals.Irreversible.Quorum != 2 || len(c.Approvals.Escalate.Groups) != 1) {
		t.Errorf("the examples of approvals: %+v", c.Approvals)
	}
	c.Approvals.URL, c.Approvals.Webhooks = want.Approvals.URL, want.Approvals.Webhooks
	c.Approvals.Irreversible, c.Approvals.Escalate = want.Approvals.Irreversible, want.Approvals.Escalate
	if c != nil && (!reflect.DeepEqual(c.Limits, want.Limits) || c.Idempotency != want.Idempotency || !reflect.DeepEqual(c.Approvals, want.Approvals) || c.Sagas != want.Sagas || !reflect.DeepEqual(c.Sandbox, want.Sandbox) || !reflect.DeepEqual(c.Redact, want.Redact)) {
		t.Errorf("the examples differ from the defaults: %+v", c)
	}
}

func exampleKey(l string) bool {
	key, _, ok := strings.Cut(l, ":")
	if !ok {
		return false
	}
	for _, k := range []string{"servers", "profiles", "agents", "sandbox", "egress", "approvals", "sagas", "limits", "idempotency", "redact", "messages", "audit", "telemetry"} {
		if key == k {
			return true
		}
	}
	return false
}

func TestFO25_EnvByteEqual(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sallyport.yaml")
	for _, tt := range []struct{ written, want string }{
		{`""`, ""}, {`''`, ""}, {`"="`, "="}, {`a=b=c`, "a=b=c"}, {`"a\nb\n"`, "a\nb\n"}, {"|\n        a\n        b\n", "a\nb\n"},
		{"|-\n        a\n         b", "a\n b"}, {`"ünï ☃ 🎉"`, "ünï ☃ 🎉"}, {`ünï ☃ 🎉`, "ünï ☃ 🎉"}, {`"\u00fc \U0001F389 \x41 \t"`, "ü 🎉 A \t"},
		{`'it''s "x"'`, `it's "x"`}, {`"say \"hi\" \\ $HOME ${HOME}"`, `say "hi" \ $HOME ${HOME}`}, {`" lead and trail "`, " lead and trail "},
		{`0755`, "0755"}, {`1_000`, "1_000"}, {`1.50`, "1.50"}, {`1e3`, "1e3"}, {`true`, "true"}, {`yes`, "yes"}, {`"null"`, "null"},
		{`9007199254740993123`, "9007199254740993123"}, {`0x1F`, "0x1F"}, {`2026-11-29`, "2026-11-29"}, {`"# not a comment"`, "# not a comment"},
		{`x # comment`, "x"}, {`a: b`, ""}, {`"${secret:db}/x?${secret:b.c}"`, "${secret:db}/x?${secret:b.c}"},
	} {
		text := "servers:\n  a:\n    command: x\n    env:\n      V: " + tt.written + "\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if tt.written == "a: b" {
			if err == nil {
				t.Errorf("%s was taken as %q", tt.written, c.Servers["a"].Env["V"])
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.written, err)
		} else if got, ok := c.Servers["a"].Env["V"]; !ok || got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.written, got, tt.want)
		}
	}
}

func TestReferences(t *testing.T) {
	for in, want := range map[string][]string{
		"": nil, "x": nil, "${secret:a}": {"a"}, "x${secret:a-b.c}y${secret:D_1}": {"a-b.c", "D_1"}, "${HOME}": nil, "${secret:": nil,
	} {
		if got := config.References(in); !reflect.DeepEqual(got, want) {
			t.Errorf("References(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestParseServer(t *testing.T) {
	s, err := config.ParseServer("files", []byte(`{"command":"npx","args":["-y","x"],"env":{"A":"b=c\n"},"timeout":"5s"}`))
	want := config.Server{Command: "npx", Args: []string{"-y", "x"}, Env: map[string]string{"A": "b=c\n"}, Isolation: config.DefaultIsolation, Timeout: 5 * time.Second, MaxLine: config.DefaultMaxLine}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("ParseServer = %+v, %v", s, err)
	}
	for name, in := range map[string]string{"a__b": `{"command":"x"}`, "a": `{"command":"./x"}`, "b": `{"comand":"x"}`, "c": `{}`, "d": ``} {
		if s, err := config.ParseServer(name, []byte(in)); err == nil {
			t.Errorf("ParseServer(%q, %s) = %+v", name, in, s)
		}
	}
}

func TestSize(t *testing.T) {
	for s, want := range map[config.Size]string{0: "0B", 1: "1B", 1024: "1KiB", 1500: "1500B", 512 << 20: "512MiB", 1 << 30: "1GiB"} {
		if got := s.String(); got != want {
			t.Errorf("%d = %s, want %s", int64(s), got, want)
		}
	}
}

// Whatever the file: a configuration or an error with place and hint, never a
// panic, never both.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		config.Starter(config.Default().Store), "a: [", "servers: {a: {command: x, env: {A: \"\\u00fc\"}}}", "? a\n: b", "&a [*a]", "{a: {b: {c: {}}}}", "listen: |\n  x", "- - -", "!!x y", "%YAML 1.2\n---\nlisten: a:1", "\"a\\", "<<: x",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := config.Parse(file, in)
		if (c == nil) != (err != nil) {
			t.Fatalf("%q: %v, %v", in, c, err)
		}
		if err == nil {
			if !filepath.IsAbs(c.Policies) || !filepath.IsAbs(c.Tools) || c.Limits.Rate <= 0 || c.Listen == "" {
				t.Fatalf("%q: %+v", in, c)
			}
			return
		}
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Hint == "" || !strings.HasPrefix(e.Message, file) {
			t.Fatalf("%q: %v", in, err)
		}
	})
}
