package catalog

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

const whole = `# comment
name: resize
version: "2"
description: |
  Resizes an image.
language: python
code: |
  print("hello")
input_schema:
  type: object
  properties:
    width: {type: integer, maximum: 18446744073709551615}
    "no": {const: yes}
output_schema: '{"type": "object"}'
risk: high
trust: untrusted
tiers: [gvisor, microvm]
fields:
  - {path: /sql, kind: sql, dialect: postgres}
  - path: /cmd
    kind: shell
limits: {timeout: 10s, memory: 256MiB, processes: 8, disk: 1GB, output: 64KiB, cpus: 0.5}
egress: ["api.example.com:443"]
secrets:
- name: token
  env: API_TOKEN
timeout: 1m
deprecated: {since: "2026-01-31", until: "2027-01-01", use: other}
compensate: {tool: undo, arguments: {id: 1.0}}
idempotency: {dedupe: 30s}
`

func TestManifestWhole(t *testing.T) {
	m, err := ParseManifest("t.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	high := sallyport.High
	want := Manifest{
		File: "t.yaml", Name: "resize", Version: "2", Description: "Resizes an image.\n", Language: "python", Code: "print(\"hello\")\n",
		InputSchema:  []byte(`{"type":"object","properties":{"width":{"type":"integer","maximum":18446744073709551615},"no":{"const":"yes"}}}`),
		OutputSchema: []byte(`{"type": "object"}`),
		Rules: sallyport.Manifest{
			Risk: &high, Trust: "untrusted", Tiers: []string{"gvisor", "microvm"},
			Fields:  []sallyport.RiskField{{Path: "/sql", Kind: "sql", Dialect: "postgres"}, {Path: "/cmd", Kind: "shell"}},
			Limits:  sallyport.Limits{Timeout: 10 * time.Second, Memory: 256 << 20, Processes: 8, Disk: 1e9, Output: 64 << 10, CPUs: 0.5},
			Egress:  []string{"api.example.com:443"},
			Secrets: []sallyport.SecretGrant{{Name: "token", Env: "API_TOKEN"}}, Timeout: time.Minute,
			Deprecated: &sallyport.Deprecation{Since: "2026-01-31", Until: "2027-01-01", Use: "other"},
			Compensate: &sallyport.Compensation{Tool: "undo", Args: []byte(`{"id":1.0}`)},
			Dedupe:     30 * time.Second,
		},
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("got  %+v\nwant %+v", m, want)
	}
	c := open(t, Options{Manifests: []Manifest{m}})
	got, err := c.Resolve("", "resize")
	if err != nil || got.Code.Source != "print(\"hello\")\n" || got.Origin.Backend != "sandbox" || got.Version != "2" {
		t.Fatalf("Resolve = %+v, %v", got, err)
	}
	changed := m
	changed.Code = "print('other')"
	if err := c.Set(nil, []Manifest{changed}); err != nil {
		t.Fatal(err)
	}
	if again, _ := c.Resolve("", "resize"); again.Digest == got.Digest {
		t.Error("the digest does not cover the code")
	}
}

// What code runs in is part of what an approval binds, by digest.
func TestManifestImage(t *testing.T) {
	m, err := ParseManifest("t.yaml", []byte("name: a\nlanguage: python\ncode: x\nimage: data\n"))
	if err != nil || m.Rules.Image != "data" {
		t.Fatal(m.Rules.Image, err)
	}
	seen := map[string]bool{}
	for _, rules := range []sallyport.Manifest{
		{}, {Image: "sha256-1"}, {Image: "sha256-2"}, {Images: sallyport.Images{"data": "sha256-1"}}, {Images: sallyport.Images{"data": "sha256-2"}},
	} {
		m.Rules = rules
		e, err := ownEntry(m.define())
		if err != nil {
			t.Fatal(err)
		}
		seen[e.tool.Digest] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d different digests of 5 different tools", len(seen))
	}
}

func TestManifestMistakes(t *testing.T) {
	const head = "name: a\nlanguage: python\ncode: x\n"
	for _, tt := range []struct{ name, src, where, hint string }{
		{"unknown key", head + "limts: {}\n", `t.yaml:4: a tool manifest has no key "limts"`, `did you mean "limits"?`},
		{"dedupe for days", head + "idempotency: {dedupe: 48h}\n", `t.yaml:4: dedupe is longer than 24h0m0s`, `30s`},
		{"dedupe of nothing", head + "idempotency: {dedupe: 0s}\n", `t.yaml:4: expected a length of time`, ``},
		{"far key", head + "zzzzzzzz: 1\n", `t.yaml:4: `, `known keys: code, `},
		{"duplicate", head + "name: b\n", `t.yaml:4: `, ``},
		{"duplicate in schema", head + "input_schema:\n  type: object\n  type: object\n", `t.yaml:6: `, ``},
		{"number for text", head + "version: 2\n", `t.yaml:4: expected text, got a number`, `quotes`},
		{"text for bool", head + "read_only: yes\n", `t.yaml:4: expected true or false, got text`, `true or false`},
		{"null", head + "description:\n", `t.yaml:4: expected text, got empty`, ``},
		{"unit", head + "limits:\n  memory: 512\n", `t.yaml:5: expected a size with its unit`, `512MiB`},
		{"bad unit", head + "limits: {timeout: 10}\n", `t.yaml:4: expected a length of time`, `30s`},
		{"negative", head + "limits: {processes: -1}\n", `t.yaml:4: `, `64`},
		{"list", head + "tiers: gvisor\n", `t.yaml:4: expected a list`, ``},
		{"tier", head + "tiers: [docker]\n", `t.yaml:4: unexpected value "docker"`, `gvisor, microvm`},
		{"tier of its own", head + "tier: container\n", `t.yaml:4: unexpected value "container"`, `auto`},
		{"tier below trust", head + "trust: untrusted\ntier: gvisor\n", `t.yaml:1: tier gvisor is weaker than microvm: trust untrusted demands microvm`, `say tier: microvm`},
		{"tiers below trust", head + "trust: untrusted\ntiers: [gvisor]\n", `t.yaml:1: no tier of the tool's will do: trust untrusted demands microvm; gvisor is weaker`, `add microvm`},
		{"gpu of strangers", head + "trust: untrusted\ngpu: true\n", `t.yaml:1: trust untrusted demands microvm: microvm has no GPU`, `trust`},
		{"risk", head + "risk: severe\n", `t.yaml:4: unexpected risk "severe"`, `low, medium`},
		{"egress", head + "egress: [https://x/]\n", `t.yaml:4: an entry of egress`, `443`},
		{"egress form", head + "egress: ['127.1:80']\n", `t.yaml:4: an entry of egress must be host:port`, `443`},
		{"egress port", head + "egress: ['example.com:*']\n", `t.yaml:4: an entry of egress must be host:port`, `443`},
		{"secret twice", head + "secrets: [{name: a, env: A, header: X-A, host: 'a.test:443'}]\n", `t.yaml:4: a secret is an environment variable or a header`, ``},
		{"secret without header", head + "secrets: [{name: a, host: 'a.test:443'}]\n", `t.yaml:4: a secret with a host or a prefix needs`, `Authorization`},
		{"secret without host", head + "secrets: [{name: a, header: X-A}]\n", `t.yaml:4: a secret in a header belongs to one host:port`, ``},
		{"secret elsewhere", head + "egress: ['b.test:443']\nsecrets: [{name: a, header: X-A, host: 'a.test:443'}]\n", `t.yaml:1: the secret for "a.test:443" is of no use`, `egress`},
		{"pointer", head + "fields:\n- {path: sql, kind: sql}\n", `t.yaml:5: path must be a JSON Pointer`, `/sql`},
		{"dialect", head + "fields: [{path: /q, kind: sql}]\n", `t.yaml:4: a field of kind sql needs a dialect`, ``},
		{"schema", head + "input_schema: {type: objekt}\n", `t.yaml:4: the schema cannot be used`, ``},
		{"external", head + "input_schema: {type: object, $ref: 'http://x/'}\n", `t.yaml:4: the schema cannot be used: external reference`, ``},
		{"schema JSON", head + "input_schema: '{\"a\":1,\"a\":2}'\n", `t.yaml:4: not valid JSON`, ``},
		{"anchor", head + "input_schema: &x {type: object}\n", `t.yaml:4: `, ``},
		{"alias", "name: &a b\nlanguage: python\ncode: *a\n", `t.yaml:1: `, ``},
		{"tag", head + "description: !!binary aGk=\n", `t.yaml:4: `, ``},
		{"two", head + "---\n" + head, `t.yaml:5: a file holds one manifest`, ``},
		{"empty", "# nothing\n", `t.yaml:1: the file is empty`, ``},
		{"list root", "- a\n", `t.yaml:1: a tool manifest must be a mapping`, ``},
		{"syntax", "name: [\n", `t.yaml:`, `YAML`},
		{"nothing runs", "name: a\n", `t.yaml:1: the manifest does not say what runs`, ``},
		{"both", head + "server: s\ntool: t\n", `t.yaml:1: `, `not both`[:0]},
		{"half", "name: a\ncode: x\n", `t.yaml:1: code and language belong together`, ``},
		{"name", "name: a.b\ncode: x\nlanguage: shell\n", `t.yaml:1: the name "a.b" cannot be exposed`, `48`},
		{"contradiction", "server: s\ntool: t\nread_only: true\nrisk: high\n", `t.yaml:1: read_only contradicts`, ``},
		{"image of another", "server: s\ntool: t\nimage: data\n", `t.yaml:1: trust, tiers, tier, gpu, image`, `sallyport.yaml`},
		{"schema of another", "server: s\ntool: t\ninput_schema: {type: object}\n", `t.yaml:1: the schema of a server's tool`, ``},
	} {
		_, err := ParseManifest("t.yaml", []byte(tt.src))
		e, ok := err.(*sallyport.Error)
		if !ok || !strings.HasPrefix(e.Message, tt.where) || !strings.Contains(e.Hint, tt.hint) {
			t.Errorf("%s: got %v (%T), want %q, hint %q", tt.name, err, err, tt.where, tt.hint)
		}
	}
}

func TestManifestRefines(t *testing.T) {
	m, err := ParseManifest("q.yaml", []byte("server: db\ntool: query\nread_only: true\nfields: [{path: /sql, kind: sql, dialect: sqlite}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, Options{Manifests: []Manifest{m}})
	set(t, c, "db", tool("other"))
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0].Reason, "q.yaml refines a tool that the server does not list") {
		t.Errorf("warnings = %v", w)
	}
	set(t, c, "db", tool("query"), tool("other"))
	got, err := c.Resolve("", "db__query")
	if err != nil || !got.Manifest.ReadOnly || len(got.Manifest.Fields) != 1 || got.Origin.Server != "db" {
		t.Errorf("Resolve = %+v, %v", got, err)
	}
	if other, _ := c.Resolve("", "db__other"); other.Manifest.ReadOnly {
		t.Error("a manifest reached another tool")
	}
	if len(c.Warnings()) != 0 {
		t.Errorf("warnings = %v", c.Warnings())
	}
}

func TestLoadManifestsTellsAllMistakes(t *testing.T) {
	dir := t.TempDir()
	for name, src := range map[string]string{"a.yaml": whole, "b.yaml": "x: 1\n", "c.yaml": "name: 5\n", "d.txt": "ignored"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadManifests(dir)
	if err == nil || !strings.Contains(err.Error(), "b.yaml:1") || !strings.Contains(err.Error(), "c.yaml:1") || len(got) != 1 {
		t.Errorf("LoadManifests = %d, %v", len(got), err)
	}
	if got, err := LoadManifests(filepath.Join(dir, "missing")); err != nil || got != nil {
		t.Errorf("a missing folder: %v, %v", got, err)
	}
}

func TestSetIsAllOrNothing(t *testing.T) {
	a, _ := ParseManifest("a.yaml", []byte("name: a\nlanguage: python\ncode: x\n"))
	b := a
	b.File = "b.yaml"
	c := open(t, Options{Manifests: []Manifest{a}})
	before := c.Generation()
	if err := c.Set(nil, []Manifest{a, b}); err == nil || !strings.Contains(err.Error(), "a.yaml") || !strings.Contains(err.Error(), "b.yaml") {
		t.Errorf("equal names: %v", err)
	}
	if c.Generation() != before {
		t.Error("a refused reload changed something")
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		m, err := ParseManifest("f.yaml", src)
		if err != nil {
			return
		}
		if m.Language != "" {
			if _, err := ownEntry(m.define()); err != nil {
				t.Fatalf("accepted, but cannot be used: %v", err)
			}
		}
	})
}
