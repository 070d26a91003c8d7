package catalog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/module"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/tier/choose"
	"sallyport.dev/sallyport/wire"
)

// A Manifest is one file of tools/: a tool that a sandbox runs (Language), or
// what the operator says about a tool of an upstream (Server and Tool).
type Manifest struct {
	File         string
	Name         string // "" for a refinement that keeps the tool's exposed name
	Version      string // "" for a refinement that keeps that of the tool's pin
	Description  string
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	Language     string
	Code         string // of wasm, what pins the module
	Module       module.Found
	Server       string
	Tool         string
	Rules        sallyport.Manifest
}

// LoadManifests reads every .yaml file of a folder, in the order of names. The
// error lists all that is wrong in all of them. A missing folder has none.
func LoadManifests(dir string) ([]Manifest, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []Manifest
	var wrong []error
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			wrong = append(wrong, &sallyport.Error{
				Code: sallyport.Invalid, Step: sallyport.Resolve, Err: err,
				Message: file + ": cannot be read", Hint: "it must be a file that the gateway may read",
			})
			continue
		}
		m, err := ParseManifest(file, src)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		all = append(all, m)
	}
	return all, errors.Join(wrong...)
}

// ParseManifest reads one manifest. Unknown keys, duplicates and wrong types
// are refused; errors say file, line and what to write instead.
func ParseManifest(file string, src []byte) (Manifest, error) {
	m := Manifest{File: file}
	d := document{file: file}
	root, err := d.parse(src)
	if err != nil {
		return m, err
	}
	r := &m.Rules
	var api, operation string
	var mod module.Named
	err = d.object(root, "a tool manifest", fields{
		"name":          d.text(&m.Name),
		"version":       d.text(&m.Version),
		"description":   d.text(&m.Description),
		"input_schema":  d.schema(&m.InputSchema),
		"output_schema": d.schema(&m.OutputSchema),
		"language":      d.oneOf(&m.Language, "python", "javascript", "shell", "wasm"),
		"code":          d.text(&m.Code),
		"module":        d.text(&mod.File),
		"digest":        d.text(&mod.Digest),
		"server":        d.text(&m.Server),
		"tool":          d.text(&m.Tool),
		"openapi":       d.text(&api),
		"operation":     d.text(&operation),
		"risk":          d.level(&r.Risk),
		"read_only":     d.boolean(&r.ReadOnly),
		"fields":        d.list(d.riskField(&r.Fields)),
		"trust":         d.oneOf(&r.Trust, "agent", "untrusted", "light"),
		"tier":          d.oneOf(&r.Tier, append(sallyport.Tiers(), choose.Auto)...),
		"tiers":         d.list(d.tier(&r.Tiers)),
		"gpu":           d.boolean(&r.GPU),
		"image":         d.text(&r.Image),
		"limits":        d.limits(&r.Limits),
		"egress":        d.list(d.host(&r.Egress)),
		"secrets":       d.list(d.secret(&r.Secrets)),
		"timeout":       d.duration(&r.Timeout),
		"untrusted":     d.boolean(&r.Untrusted),
		"may_receive":   d.list(d.received(&r.MayReceive)),
		"deprecated":    d.deprecated(&r.Deprecated),
		"compensate":    d.compensate(&r.Compensate),
		"idempotency":   d.idempotency(&r.Dedupe),
		"witness":       d.list(d.witness(&r.Witness)),
		"estimate":      d.estimate(&r.Estimate),
	})
	if err != nil {
		return m, err
	}
	if api+operation != "" { // an operation is a tool of the server that the API is
		if api == "" || operation == "" || m.Server+m.Tool != "" {
			return m, d.errorf(root, "openapi names the server, operation its operationId", "openapi and operation belong together, and stand in the place of server and tool")
		}
		m.Server, m.Tool = api, operation
	}
	if m.Language != "" && m.Version == "" {
		m.Version = "1"
	}
	if wrong := m.find(mod); wrong != nil {
		return m, d.errorf(root, wrong.Hint, "%s", wrong.Message)
	}
	return m, m.check(d, root)
}

// find looks at the module of a manifest of language wasm.
func (m *Manifest) find(named module.Named) (wrong *module.Wrong) {
	switch {
	case m.Language == module.Language && m.Code == "":
		named.Image, m.Rules.Image = m.Rules.Image, ""
		m.Module, wrong = module.Find(filepath.Dir(m.File), named)
		m.Code = m.Module.Source
		return wrong
	case m.Language == module.Language || named != (module.Named{}):
		return module.Misplaced()
	}
	return nil
}

// check looks at what one key alone cannot tell.
func (m *Manifest) check(d document, root ast.Node) error {
	code, refines := m.Code != "" || m.Language != "", m.Server != "" || m.Tool != ""
	switch {
	case code && refines:
		return d.errorf(root, "keep code and language, or server and tool", "a manifest either brings code or refines a server's tool, not both")
	case code && (m.Code == "" || m.Language == ""):
		return d.errorf(root, "add the missing one", "code and language belong together")
	case refines && (m.Server == "" || m.Tool == ""):
		return d.errorf(root, "add the missing one", "server and tool belong together")
	case !code && !refines:
		return d.errorf(root, "add code and language, or server and tool", "the manifest does not say what runs")
	case m.Name == "" && code:
		return d.errorf(root, "add name:", "a tool with code needs a name")
	case m.Name != "" && !validName(m.Name):
		return d.errorf(root, fmt.Sprintf("use at most %d characters of A-Z a-z 0-9 _ -", MaxName), "the name %.80q cannot be exposed", m.Name)
	case refines && (m.InputSchema != nil || m.OutputSchema != nil):
		return d.errorf(root, "remove input_schema and output_schema", "the schema of a server's tool is the server's")
	case refines && (m.Rules.Tiers != nil || m.Rules.Tier != "" || m.Rules.GPU || m.Rules.Trust != "" || m.Rules.Egress != nil || m.Rules.Secrets != nil || m.Rules.Image != "" || m.Rules.Limits != (sallyport.Limits{})):
		return d.errorf(root, "say it at the server in sallyport.yaml", "trust, tiers, tier, gpu, image, limits, egress and secrets are for tools with code")
	case unreachable(m.Rules) != "":
		return d.errorf(root, "add it to egress", "the secret for %.80q is of no use: egress does not list that host and port", unreachable(m.Rules))
	case m.Rules.Estimate != nil && (!refines || !slices.ContainsFunc(m.Rules.Fields, func(f sallyport.RiskField) bool { return f.Kind == "sql" })):
		return d.errorf(root, "add fields: [{path: /sql, kind: sql, dialect: postgres}], or remove estimate", "estimate is for a server's tool that says which of its arguments is SQL")
	case m.Rules.ReadOnly && m.Rules.Risk != nil && *m.Rules.Risk >= sallyport.High:
		return d.errorf(root, "remove one of the two", "read_only contradicts risk: %s", *m.Rules.Risk)
	case code:
		return m.runs(d, root)
	}
	return nil
}

// runs refuses what no host could run.
func (m *Manifest) runs(d document, root ast.Node) error {
	_, err := choose.Of(m.Described(), nil, nil)
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		return d.errorf(root, e.Hint, "%s", e.Message)
	}
	return err
}

// unreachable finds a secret for a host that the tool may not reach.
func unreachable(m sallyport.Manifest) string {
	rules, err := egress.ParseRules(m.Egress)
	for _, s := range m.Secrets {
		if s.Header == "" {
			continue
		}
		if t, e := egress.ParseTarget(s.Host); err != nil || e != nil || !rules.Allow(t) {
			return s.Host
		}
	}
	return ""
}

// Described is the tool as far as the manifest alone tells: for judging arguments
// offline. Its name is the exposed one.
func (m Manifest) Described() sallyport.Tool {
	if m.Language != "" {
		return m.define()
	}
	name := cmp.Or(m.Name, ExposedName(m.Server, m.Tool))
	return sallyport.Tool{Name: name, Origin: sallyport.Origin{Backend: "upstream", Server: m.Server, Name: m.Tool}, Manifest: m.Rules}
}

// define turns a manifest with code into a tool.
func (m Manifest) define() sallyport.Tool {
	return sallyport.Tool{
		Name: m.Name, Version: m.Version, Description: m.Description,
		InputSchema: m.InputSchema, OutputSchema: m.OutputSchema,
		Origin:   sallyport.Origin{Backend: "sandbox", Name: m.Name},
		Code:     &sallyport.Script{Language: m.Language, Source: m.Code, File: m.Module.File},
		Manifest: m.Rules, StatusReason: m.Module.Changed,
	}
}

// refine puts the operator's word on an upstream's tool.
func (m Manifest) refine(e *entry) *entry {
	fresh := *e
	t := &fresh.tool
	own := t.Manifest
	t.Manifest, t.Version = m.Rules, cmp.Or(m.Version, t.Version)
	t.Manifest.Timeout = cmp.Or(m.Rules.Timeout, own.Timeout)
	if m.Description != "" {
		t.Description = m.Description
	}
	if m.Name != "" && m.Name != t.Name {
		t.Name = m.Name
		t.Definition = rename(t.Definition, m.Name, t.Origin.Name)
	}
	return &fresh
}

// ownEntry fills in what the gateway's own tools may leave out.
func ownEntry(t sallyport.Tool) (*entry, error) {
	if !validName(t.Name) {
		return nil, fmt.Errorf("the name %.80q cannot be exposed: use at most %d characters of A-Z a-z 0-9 _ -", t.Name, MaxName)
	}
	if t.InputSchema == nil {
		t.InputSchema = json.RawMessage(`{"type":"object","additionalProperties":false}`)
	}
	if t.Origin.Name == "" {
		t.Origin.Name = t.Name
	}
	if t.Version == "" {
		t.Version = "1"
	}
	t.Status = sallyport.ToolActive
	if t.StatusReason != "" {
		t.Status = sallyport.ToolQuarantined
	}
	if t.Definition == nil {
		t.Definition = definition(t)
	}
	e := &entry{}
	if reason := e.read(t.Definition); reason != "" {
		return nil, errors.New(reason)
	}
	t.InputSchema, t.OutputSchema = e.tool.InputSchema, e.tool.OutputSchema
	t.Digest = ownDigest(t)
	e.tool = t
	return e, nil
}

func definition(t sallyport.Tool) json.RawMessage {
	b := append([]byte(`{"name":`), wire.Quote(t.Name)...)
	if t.Description != "" {
		b = append(append(b, `,"description":`...), wire.Quote(t.Description)...)
	}
	b = append(append(b, `,"inputSchema":`...), t.InputSchema...)
	if t.OutputSchema != nil {
		b = append(append(b, `,"outputSchema":`...), t.OutputSchema...)
	}
	return append(b, '}')
}

// ownDigest covers what runs besides what is listed, so that an approval of a
// call does not outlive a change of the code or of what the code may reach.
func ownDigest(t sallyport.Tool) string {
	parts := []string{string(t.Definition), t.Version}
	if t.Code != nil {
		parts = append(parts, t.Code.Language, t.Code.Source)
	}
	for _, s := range t.Manifest.Secrets {
		parts = append(parts, s.Name, s.Env, s.Header, s.Prefix, s.Host)
	}
	parts = append(append(parts, "egress"), t.Manifest.Egress...)
	if t.Manifest.Image != "" {
		parts = append(parts, "image", t.Manifest.Image)
	}
	if t.Manifest.GPU {
		parts = append(parts, "gpu")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Manifest.Images)) {
		parts = append(parts, "images", name, t.Manifest.Images[name])
	}
	b, err := json.Marshal(slices.Concat([]string{"sallyport tool v1"}, parts))
	if err != nil {
		return ""
	}
	return digest(b)
}
