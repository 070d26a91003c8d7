package library

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/fit"
	"sallyport.dev/sallyport/wire"
)

// take makes a source of what a server says that it holds.
func (l *Library) take(ctx context.Context, in Listing) *source {
	s := &source{
		origin:  sallyport.Origin{Backend: "upstream", Server: in.Server, Endpoint: in.Endpoint, Credential: in.Credential},
		timeout: in.Timeout, holds: in.Holds || len(in.Resources)+len(in.Templates) > 0,
		shelves: map[sallyport.Shelf][]sallyport.Tool{}, normal: map[string]bool{}, pins: map[string]pinned{},
	}
	firsts := map[string]catalog.Pin{}
	for kind, raws := range map[sallyport.Shelf][]json.RawMessage{
		sallyport.Resources: in.Resources, sallyport.Templates: in.Templates, sallyport.Prompts: in.Prompts,
	} {
		seen := map[string]bool{}
		for i, raw := range raws {
			t, changed, err := s.item(kind, raw, l.o.Clean)
			if err == nil && seen[t.Name] {
				err = fmt.Errorf("it is listed twice; the first one counts")
			}
			if err != nil {
				s.warnings = append(s.warnings, fmt.Sprintf("%s: number %d of the list is left out: %v", kind, i+1, err))
				continue
			}
			if len(changed) > 0 {
				s.warnings = append(s.warnings, fmt.Sprintf("%s: some clients would take no list with number %d, so agents see these otherwise, or not: %s", kind, i+1, strings.Join(changed, ", ")))
			}
			seen[t.Name] = true
			l.settle(ctx, s, &t, raw, in.Instructions, firsts)
			s.shelves[kind] = append(s.shelves[kind], t)
			if kind == sallyport.Resources {
				s.normal[normal(t.Origin.Name)] = true
			}
		}
	}
	l.pinFirsts(ctx, s, firsts)
	return s
}

// keys are the members by which the things of each shelf are known.
var keys = map[sallyport.Shelf]string{sallyport.Resources: "uri", sallyport.Templates: "uriTemplate", sallyport.Prompts: "name"}

// fits are the ways to make the things of each shelf fit for clients.
var fits = map[sallyport.Shelf]func(json.RawMessage) (json.RawMessage, []string){
	sallyport.Resources: fit.Resource, sallyport.Templates: fit.Template, sallyport.Prompts: fit.Prompt,
}

// item makes a thing of what a server says of it. changed are its members that agents
// see otherwise.
func (s *source) item(kind sallyport.Shelf, raw json.RawMessage, clean func(json.RawMessage) json.RawMessage) (t sallyport.Tool, changed []string, err error) {
	key := keys[kind]
	t = sallyport.Tool{
		Shelf: kind, Version: "1", Status: sallyport.ToolActive, Origin: s.origin, Manifest: sallyport.Manifest{Timeout: s.timeout},
	}
	if err := wire.Validate(raw); err != nil || !wire.IsObject(raw) {
		return t, nil, fmt.Errorf("it is not a JSON object")
	}
	var ok bool
	if t.Origin.Name, ok = wire.String(wire.Member(raw, key)); !ok || t.Origin.Name == "" || len(t.Origin.Name) > maxAddress {
		return t, nil, fmt.Errorf("it needs %s, a string of 1 to %d bytes", key, maxAddress)
	}
	if t.Name, ok = s.exposed(kind, t.Origin.Name); !ok {
		return t, nil, fmt.Errorf("its %s cannot be mapped", key)
	}
	cleaned, changed := fits[kind](clean(raw))
	if same, _ := wire.String(wire.Member(cleaned, key)); same != t.Origin.Name {
		return t, nil, fmt.Errorf("its %s holds a secret, or characters that nobody sees", key)
	}
	t.Description, _ = wire.String(wire.Member(cleaned, "description"))
	if kind == sallyport.Prompts {
		t.InputSchema = wire.Member(cleaned, "arguments")
	}
	definition, err := wire.SetMember(cleaned, key, wire.Quote(t.Name))
	if err != nil {
		return t, nil, err
	}
	if kind == sallyport.Prompts && !strings.HasSuffix(t.Name, "__"+t.Origin.Name) {
		if named, err := wire.SetPath(definition, wire.Quote(t.Origin.Name), "_meta", catalog.MetaOrigin); err == nil {
			definition = named
		}
	}
	t.Definition, t.Digest = definition, digest(definition)
	return t, changed, nil
}

func (s *source) exposed(kind sallyport.Shelf, name string) (string, bool) {
	switch kind {
	case sallyport.Prompts:
		return catalog.ExposedName(s.origin.Server, name), true
	case sallyport.Templates:
		return exposeTemplate(s.origin.Server, name)
	default:
		return Expose(s.origin.Server, name), true
	}
}

// unmapped is a thing as a profile with bare names shows it.
func unmapped(t sallyport.Tool) sallyport.Tool {
	if bare, err := wire.SetMember(t.Definition, keys[t.Shelf], wire.Quote(t.Origin.Name)); err == nil {
		t.Definition, t.Alias = bare, t.Origin.Name
	}
	return t
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
