package gateway

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"sallyport.dev/sallyport"
)

// leaking are the parts of arguments that leave the gateway and hold secrets.
func (g *Gateway) leaking(a validArgs) []sallyport.Part {
	outside := a.tool.Origin.Backend != "builtin" && (a.tool.Code == nil || len(a.tool.Manifest.Egress) > 0)
	if g.Inspector == nil || !outside || slices.Contains(a.tool.Manifest.MayReceive, "secrets") {
		return nil
	}
	parts, whole := g.Inspector.Secrets(a.canonical)
	if !whole {
		parts = append(parts, sallyport.Part{Label: "secret", Text: "not ruled out: the arguments are too long to look through"})
	}
	return parts
}

// highlight raises the risk of a call whose arguments hold secrets, and shows a
// human where, by fingerprint.
func (g *Gateway) highlight(risk sallyport.Risk, secrets []sallyport.Part) sallyport.Risk {
	if len(secrets) == 0 {
		return risk
	}
	risk = g.discreet(g.maskRisk(risk)) // it may quote them
	risk.Level = sallyport.Critical
	risk.Parts = append(slices.Clone(secrets), risk.Parts...)
	risk.Reasons = append([]string{"secrets would leave: " + where(secrets)}, risk.Reasons...)
	return risk
}

func where(secrets []sallyport.Part) string {
	var out []string
	for _, p := range secrets {
		at := p.Text
		if p.Path != "" {
			at = p.Text + " at " + p.Path
		}
		out = append(out, at)
	}
	return strings.Join(out, "; ")
}

// refuseSecrets refuses, where the operator wants that, a call that a human
// would be asked about.
func (g *Gateway) refuseSecrets(secrets []sallyport.Part) error {
	if !g.DenySecrets || len(secrets) == 0 {
		return nil
	}
	return &sallyport.Error{
		Code: sallyport.Denied, Step: sallyport.Authorize,
		Message: g.Sanitiser.Text("secrets would leave: " + where(secrets)),
		Hint:    "take them out; a tool that is meant to have them says may_receive: [secrets] in its manifest",
	}
}

// discreet withholds each text of a verdict that holds a secret, in whatever
// form.
func (g *Gateway) discreet(risk sallyport.Risk) sallyport.Risk {
	say := func(s *string) {
		quoted, err := json.Marshal(*s)
		if err == nil {
			if parts, whole := g.Inspector.Secrets(quoted); whole && len(parts) == 0 {
				return
			}
		}
		*s = withheld
	}
	for i := range risk.Reasons {
		say(&risk.Reasons[i])
	}
	for i := range risk.Objects {
		say(&risk.Objects[i])
	}
	for i := range risk.Parts {
		say(&risk.Parts[i].Text)
	}
	for i := range risk.Amounts {
		say(&risk.Amounts[i].Recipient)
	}
	return risk
}

const withheld = "[withheld: holds a secret]"

// withhold takes the values that hold secrets out of arguments, for the record.
func withhold(args json.RawMessage, secrets []sallyport.Part) json.RawMessage {
	if len(secrets) == 0 || args == nil {
		return args
	}
	all := json.RawMessage(`{"withheld":"holds a secret"}`)
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var doc any
	if err := d.Decode(&doc); err != nil {
		return all
	}
	for _, p := range secrets {
		var ok bool
		if doc, ok = replaced(doc, strings.Split(p.Path, "/")[1:]); !ok || p.Path == "" {
			return all
		}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		return all
	}
	return out
}

// replaced puts a mark in the place that a path leads to, or where it leaves what
// is JSON: the rest of it is within a text.
func replaced(v any, path []string) (any, bool) {
	if len(path) == 0 {
		return withheld, true
	}
	part := sallyport.PointerName(path[0])
	switch v := v.(type) {
	case map[string]any:
		inner, ok := v[part]
		if ok {
			v[part], ok = replaced(inner, path[1:])
		}
		return v, ok
	case []any:
		i, err := strconv.Atoi(part)
		if err != nil || i < 0 || i >= len(v) {
			return v, false
		}
		var ok bool
		v[i], ok = replaced(v[i], path[1:])
		return v, ok
	}
	return withheld, true
}
