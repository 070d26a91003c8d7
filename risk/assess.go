package risk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// Assess judges one call. args are canonical. What cannot be judged before ctx
// ends, or within a second, is critical.
func (e *Engine) Assess(ctx context.Context, tool sallyport.Tool, args json.RawMessage) (r sallyport.Risk) {
	defer func() {
		if p := recover(); p != nil {
			r = finding.One(sallyport.Critical, "the arguments broke the analyser, so what the call does is unknown")
		}
	}()
	var l finding.List
	switch {
	case tool.Shelf != "":
		l.Effect(sallyport.EffectRead)
		l.Add(sallyport.Low, "reads what a server holds, which by the protocol changes nothing")
	case tool.Origin.Backend == "builtin":
		l.Add(sallyport.Low, "is the gateway's own and changes nothing")
	case tool.Code != nil:
		reach(&l, tool.Manifest)
	default:
		s, end := e.sit(ctx)
		defer end()
		s.upstream(&l, tool, args)
		if why := s.late(); why != "" {
			l.Add(sallyport.Critical, "%s", why)
		}
	}
	if l.Empty() {
		l.Add(sallyport.Critical, "nothing in the arguments could be judged")
	}
	if declared := tool.Manifest.Risk; declared != nil && *declared > sallyport.Low {
		l.Add(*declared, "the tool's manifest declares it %s", *declared)
	}
	return l.Risk()
}

// reach judges sandboxed code by what it can get at, not by its text.
func reach(l *finding.List, m sallyport.Manifest) {
	l.Effect(sallyport.EffectExecute)
	for _, host := range m.Egress {
		l.Object(host)
	}
	if len(m.Egress) > 0 {
		l.Effect(sallyport.EffectNetwork)
		l.Add(sallyport.High, "runs code that can reach %s", strings.Join(m.Egress, ", "))
	}
	if len(m.Secrets) > 0 {
		names := make([]string, len(m.Secrets))
		for i, s := range m.Secrets {
			names[i] = s.Name
		}
		l.Add(sallyport.High, "runs code that is given secrets: %s", strings.Join(names, ", "))
	}
	if l.Empty() {
		l.Add(sallyport.Low, "runs code in a sandbox without network or secrets")
	}
}

// upstream judges a call of a tool that runs elsewhere.
func (e *sitting) upstream(l *finding.List, tool sallyport.Tool, args json.RawMessage) {
	m := tool.Manifest
	judged := false
	if len(m.Fields) > 0 {
		doc, err := decode(args)
		if err != nil {
			l.Add(sallyport.Critical, "the arguments are not valid JSON")
			return
		}
		judged = e.fields(l, m.Fields, doc)
	}
	if tool.Route != nil && !m.ReadOnly {
		e.route(l, tool, args)
		judged = true
	}
	switch {
	case m.ReadOnly:
		if l.Empty() {
			l.Effect(sallyport.EffectRead)
			l.Add(sallyport.Low, "the operator vouches that the tool changes nothing")
		}
	case judged:
		e.undeclared(l, tool, args)
	case len(m.Fields) > 0:
		l.Add(sallyport.High, "none of the declared arguments says what the call does, so it is taken to change things")
		l.Effect(sallyport.EffectOpaque)
		e.scan(l, tool, args)
	default:
		l.Effect(sallyport.EffectOpaque)
		l.Add(sallyport.High, "nothing is declared about this tool, so it is taken to change things")
		e.scan(l, tool, args)
	}
}

func decode(args []byte) (any, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("more than one value")
	}
	return v, nil
}
