package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/config"
)

func TestTO59_RefusedWhole(t *testing.T) {
	for _, tt := range []struct{ name, in, message, hint string }{
		{"empty", "", "sallyport.yaml: the file is empty", "sallyport init"},
		{"blank", " \n\n", "the file is empty", ""},
		{"only comments", "# nothing\n", "holds no settings", ""},
		{"null", "null\n", "yaml:1:1: ", ""},
		{"text", "listen\n", "yaml:1:1: the file must be a block of keys", ""},
		{"list", "- a\n", "yaml:1:1: the file must be a block of keys", ""},
		{"truncated key", "listen: 127.0.0.1:7450\npoli", "yaml:2:1: ", ""},
		{"truncated flow", "limits: {rate: 1", "yaml:1:", ""},
		{"truncated quote", "listen: \"127.0", "yaml:1:", ""},
		{"truncated after a key", "listen: 127.0.0.1:7450\nservers:\n", "yaml:2:", "give it a value"},
		{"two documents", "listen: a:1\n---\nlisten: b:2\n", "yaml:3:", "---"},
		{"not UTF-8", "listen: a\xff", "yaml:1:10: a byte that is not UTF-8", ""},
		{"control character", "listen: a\x00b", "yaml:1:10: a control character, U+0000", ""},
		{"tab", "limits:\n\trate: 1\n", "yaml:2:", ""},
		{"unknown key", "lisen: a:1\n", `yaml:1:1: unknown key "lisen"`, "did you mean listen?"},
		{"unknown key below", "limits:\n  rate: 1\n  brust: 2\n", `yaml:3:3: unknown key "limits.brust"`, "did you mean burst?"},
		{"window without a limit", "limits: {windows: [{per: 1h}]}\n", "limits.windows[0] has no limit", "limit:"},
		{"window of a word", "limits: {windows: [{limit: much}]}\n", `limits.windows[0].limit: "much" is not an amount`, "decimal"},
		{"window below zero", "limits: {windows: [{limit: \"-1\"}]}\n", "is not an amount", ""},
		{"window of a huge number", "limits: {windows: [{limit: 1e400}]}\n", "is not an amount", ""},
		{"window by nothing known", "limits: {windows: [{limit: 1, by: user}]}\n", `limits.windows[0].by: "user" is not known`, "principal, recipient, tenant"},
		{"window too long", "limits: {windows: [{limit: 1, per: 745h}]}\n", "limits.windows[0].per must be between 1s and 744h", ""},
		{"window of a bad currency", "limits: {windows: [{limit: 1, currency: €}]}\n", "currency", "EUR"},
		{"quota of nothing", "limits: {quotas: [{tool: x}]}\n", "limits.quotas[0].calls must be at least 1", ""},
		{"quota of a bad tool", "limits: {quotas: [{tool: \"a b\", calls: 1}]}\n", `"a b" cannot be the name of a tool`, ""},
		{"no open calls", "idempotency: {open: 0}\n", "idempotency.open must be between 1 and 1000000", ""},
		{"no retention", "idempotency: {retention: 1m}\n", "idempotency.retention must be", ""},
		{"no lease", "idempotency: {lease: 1ms}\n", "idempotency.lease must be", ""},
		{"no outputs", "idempotency: {outputs: 1KiB}\n", "idempotency.outputs must be at least 1MiB", ""},
		{"unknown key, none near", "zzz: 1\n", `unknown key "zzz"`, "the keys here are listen, advertise, hosts"},
		{"duplicate key", "listen: a:1\ntools: t\nlisten: b:2\n", "yaml:3:1: listen is set twice; first at line 1", "keep one"},
		{"duplicate server", "servers:\n  a: {command: x}\n  a: {command: y}\n", "yaml:3:3: servers.a is set twice", ""},
		{"duplicate, quoted", "listen: a:1\n\"listen\": b:2\n", "yaml:2:1: listen is set twice", ""},
		{"number for text", "listen: 7450\n", "yaml:1:9: listen must be text, not a number", ""},
		{"text for a number", "limits: {burst: \"5\"}\n", "limits.burst must be a whole number, not text", "without quotes"},
		{"fraction for a whole number", "limits: {burst: 1.5}\n", "limits.burst must be a whole number", ""},
		{"too large", "limits: {burst: 99999999999}\n", "is not a number that fits", ""},
		{"yes for true", "audit: {strict: yes}\n", "audit.strict must be true or false, not text", ""},
		{"text for a list", "redact: {pii: card}\n", "redact.pii must be a list, not text", ""},
		{"list for a block", "servers: [a]\n", "servers must be a block of keys, not a list", ""},
		{"text for a block", "limits: many\n", "limits must be a block of keys, not text", "rate"},
		{"null in a list", "redact:\n  pii:\n    - \n", "is empty", ""},
		{"null value", "limits: {rate: null}\n", "limits.rate is empty", "remove the line"},
		{"anchor", "servers:\n  a: &x {command: y}\n", "anchors and aliases are not supported", ""},
		{"alias", "servers:\n  a: *x\n", "yaml:2:", ""},
		{"merge key", "servers:\n  a:\n    <<: {command: y}\n", "yaml:3:", ""},
		{"tag", "listen: !!str 127.0.0.1:1\n", "tags are not supported", ""},
		{"no unit", "approvals: {wait: 30}\n", "approvals.wait has no unit", "30s"},
		{"bad duration", "approvals: {wait: 30 secs}\n", `approvals.wait: "30 secs" is not a duration`, "30s"},
		{"negative duration", "approvals: {decide_by: -1s}\n", "is not a duration", ""},
		{"zero", "approvals: {decide_by: 0s}\n", "approvals.decide_by must be above 0", ""},
		{"no room for tickets", "approvals: {per_agent: 0}\n", "approvals.per_agent must be at least 1", ""},
		{"no quorum", "approvals: {irreversible: {quorum: 0}}\n", "approvals.irreversible.quorum must be between 1 and 20", ""},
		{"a large quorum", "approvals: {irreversible: {quorum: 21}}\n", "between 1 and 20", ""},
		{"a group's name", "approvals: {irreversible: {groups: [\"a,b\"]}}\n", `"a,b" cannot be the name of a group`, ""},
		{"escalation to nobody", "approvals: {escalate: {after: 1m}}\n", "approvals.escalate needs both after and groups", ""},
		{"escalation when all is over", "approvals: {escalate: {after: 1h, groups: [a]}}\n", "comes when the ticket has expired", "decide_by"},
		{"size without unit", "redact: {max_bytes: 1048576}\n", "redact.max_bytes has no unit", "512MiB"},
		{"bad size", "redact: {max_bytes: 1mib}\n", `"1mib" is not a size`, "512MiB"},
		{"huge size", "redact: {max_bytes: 9999999999TiB}\n", "is too large", ""},
		{"small size", "redact: {max_bytes: 1KiB}\n", "redact.max_bytes must be between 4KiB and 1GiB", ""},
		{"zero rate", "limits: {rate: 0}\n", "limits.rate must be above 0", ""},
		{"tiers without gvisor", "sandbox: {tiers: [microvm]}\n", "yaml:1:11: sandbox.tiers lacks gvisor", "add gvisor"},
		{"misspelt tier", "sandbox: {tiers: [gvisor, mikrovm]}\n", `"mikrovm" is not known`, "microvm"},
		{"no port", "listen: 127.0.0.1\n", `listen: "127.0.0.1" is not HOST:PORT`, "127.0.0.1:7450"},
		{"bad port", "listen: 127.0.0.1:99999\n", `"99999" is not a port`, ""},
		{"no host", "listen: :7450\n", "names no host", "0.0.0.0"},
		{"bad host", "listen: \"a b:1\"\n", `"a b" is not a host`, ""},
		{"store", "store: mysql://u:hunter2@h/d\n", "yaml:1:1: store names no store", "postgres"},
		{"unknown server in a profile", "servers:\n  github: {command: x}\nprofiles:\n  p: {servers: [gihub]}\n", `yaml:4:17: profiles.p.servers[0]: there is no server "gihub"`, "did you mean github?"},
		{"no server at all", "profiles:\n  p: {servers: [x]}\n", "there is no server", "add it under servers"},
		{"profile name", "profiles:\n  P!: {tools: [a]}\n", `"P!" cannot be the name of a profile`, ""},
		{"server name", "servers:\n  a__b: {command: x}\n", `"a__b" cannot be the name of a server`, ""},
		{"neither", "servers:\n  a: {timeout: 1s}\n", "yaml:2:3: servers.a has neither command nor url", ""},
		{"both", "servers:\n  a: {command: x, url: \"http://h/\"}\n", "has both command and url", ""},
		{"args of a url", "servers:\n  a: {url: \"http://h/\", args: [x]}\n", "servers.a.args does not fit", ""},
		{"headers of a command", "servers:\n  a: {command: x, headers: {A: b}}\n", "servers.a.headers does not fit", ""},
		{"shell line", "servers:\n  a: {command: npx -y foo}\n", "is more than a program", "args"},
		{"user in a URL", "servers:\n  a: {url: \"http://u:hunter2@h/\"}\n", "servers.a.url holds a user or password", "headers"},
		{"ftp", "servers:\n  a: {url: \"ftp://h/\"}\n", "is not the URL of an HTTP endpoint", ""},
		{"isolation", "servers:\n  a: {command: x, isolation: docker}\n", `"docker" is not known`, "uid, gvisor, none"},
		{"egress", "servers:\n  a: {command: x, egress: [example.org]}\n", "servers.a.egress[0]", "HOST:PORT"},
		{"env name", "servers:\n  a: {command: x, env: {A-B: c}}\n", `"A-B" cannot be the name of a variable`, ""},
		{"secret reference", "servers:\n  a:\n    command: x\n    env:\n      A: ${secret:}hunter2\n", "yaml:5:7: servers.a.env.A holds a broken reference", "${secret:NAME}"},
		{"secret reference, open", "servers:\n  a: {url: \"http://h/\", headers: {A: \"${secret:x\"}}\n", "broken reference", ""},
		{"secrets reference", "servers:\n  a: {command: x, env: {A: \"${secrets:x}\"}}\n", "broken reference", ""},
		{"header line break", "servers:\n  a: {url: \"http://h/\", headers: {A: \"b\\nC: d\"}}\n", "holds a line break", ""},
		{"null env", "servers:\n  a: {command: x, env: {A: }}\n", "servers.a.env.A is empty", ""},
		{"CIDR", "egress: {private: [10.1.2.3]}\n", "is not a CIDR range", ""},
		{"loose CIDR", "egress: {private: [10.1.2.3/8]}\n", "has bits beyond its length", "10.0.0.0/8"},
		{"all addresses", "egress: {private: [0.0.0.0/0]}\n", "is every address", ""},
		{"home", "data: ~/x\n", "is not a path", "~"},
		{"outbound", "redact: {outbound: block}\n", `redact.outbound: "block" is not known`, "approve, deny, off"},
		{"taint", "redact: {taint: 30}\n", "redact.taint has no unit", "30s"},
		{"a mail address for a domain", "messages: {internal: [ann@example.com]}\n", `"ann@example.com" cannot be the name of a mail domain`, "example.com"},
		{"a domain of one label", "messages: {internal: [localhost]}\n", "cannot be the name of a mail domain", ""},
		{"pii", "redact: {pii: [cards]}\n", `redact.pii[0]: "cards" is not known`, "card, ssn, email"},
		{"log", "telemetry: {log: loud}\n", `"loud" is not known`, ""},
	} {
		c, err := config.Parse(file, []byte(tt.in))
		if c != nil || err == nil {
			t.Errorf("%s: %+v, want an error", tt.name, c)
			continue
		}
		e, ok := errors.AsType[*sallyport.Error](err)
		if !ok || e.Code != sallyport.Invalid || e.Hint == "" {
			t.Errorf("%s: %#v, want code, message and hint", tt.name, err)
			continue
		}
		if !strings.Contains(e.Message, tt.message) || !strings.HasPrefix(e.Message, file) || !strings.Contains(e.Hint, tt.hint) {
			t.Errorf("%s: %q, hint %q; want %q, hint %q", tt.name, e.Message, e.Hint, tt.message, tt.hint)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a secret: %v", tt.name, err)
		}
	}
}

// A file that is cut anywhere is refused, or means no more than what is left:
// never something else.
func TestTO59_Truncated(t *testing.T) {
	whole := "listen: 127.0.0.1:7450\nlimits:\n  rate: 5\nredact:\n  pii: [card]\n"
	full, err := config.Parse(file, []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range len(whole) {
		c, err := config.Parse(file, []byte(whole[:i]))
		if err != nil {
			refused++
			continue
		}
		if c.Limits.Rate != full.Limits.Rate && c.Limits.Rate != config.Default().Limits.Rate || !strings.HasPrefix("127.0.0.1:7450", c.Listen) {
			t.Errorf("cut at %d: %+v", i, c)
		}
	}
	if refused < len(whole)/2 {
		t.Errorf("only %d of %d cuts were refused", refused, len(whole))
	}
}

func TestTO59_Unreadable(t *testing.T) {
	dir := t.TempDir()
	locked := filepath.Join(dir, "locked.yaml")
	if err := os.WriteFile(locked, []byte("listen: 127.0.0.1:1\n"), 0o000); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		code sallyport.Code
	}{
		{filepath.Join(dir, "none.yaml"), sallyport.NotFound},
		{dir, sallyport.Unavailable},
		{locked, sallyport.Unavailable},
	} {
		if tt.path == locked && os.Geteuid() == 0 {
			t.Log("not tried: root reads a file of mode 000")
			continue
		}
		c, err := config.Load(tt.path)
		e, ok := errors.AsType[*sallyport.Error](err)
		if c != nil || !ok || e.Code != tt.code || e.Hint == "" || !strings.Contains(e.Message, tt.path) {
			t.Errorf("Load(%s) = %v, %v", tt.path, c, err)
		}
	}
}

func TestSeveralProblemsInOneGo(t *testing.T) {
	_, err := config.Parse(file, []byte("lisen: a:1\nlimits: {rate: x}\nredact: {pii: card}\n"))
	if n := strings.Count(err.Error(), file); n != 3 {
		t.Errorf("%d problems in %q, want 3", n, err)
	}
}
