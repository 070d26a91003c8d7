// Package outbound judges what leaves the gateway in the arguments of a call, and
// keeps the secrets among it out of the record.
package outbound

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"sallyport.dev/sallyport"
)

// Withheld stands for a text that holds a secret.
const Withheld = "[withheld: holds a secret]"

// An Inspector finds secrets in arguments that are about to leave. (redact)
type Inspector interface {
	// Secrets returns where they are and what they are, with a fingerprint,
	// never the secret. whole is false where there was more than it looks
	// through.
	Secrets(args json.RawMessage) (parts []sallyport.Part, whole bool)
}

// Leaking are the parts of a tool's canonical arguments that leave the gateway and
// hold secrets. Without an inspector there are none.
func Leaking(in Inspector, tool sallyport.Tool, args json.RawMessage) []sallyport.Part {
	outside := tool.Origin.Backend != "builtin" && (tool.Code == nil || len(tool.Manifest.Egress) > 0)
	if in == nil || !outside || slices.Contains(tool.Manifest.MayReceive, "secrets") {
		return nil
	}
	parts, whole := in.Secrets(args)
	if !whole {
		parts = append(parts, sallyport.Part{Label: "secret", Text: "not ruled out: the arguments are too long to look through"})
	}
	return parts
}

// Clean tells whether a text certainly holds no secret, in whatever form. Without
// an inspector every text passes.
func Clean(in Inspector, text string) bool {
	if in == nil {
		return true
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return false
	}
	parts, whole := in.Secrets(quoted)
	return whole && len(parts) == 0
}

// Highlight raises the risk of a call whose arguments hold secrets, and shows a
// human where, by fingerprint. What quotes a secret in the verdict is withheld.
func Highlight(in Inspector, risk sallyport.Risk, secrets []sallyport.Part) sallyport.Risk {
	risk = risk.Reworded(func(text string) string {
		if !Clean(in, text) {
			return Withheld
		}
		return text
	})
	risk.Level = sallyport.Critical
	risk.Parts = append(slices.Clone(secrets), risk.Parts...)
	risk.Reasons = append([]string{Say(secrets)}, risk.Reasons...)
	return risk
}

// Say tells a reader what would leave, and where it stands.
func Say(secrets []sallyport.Part) string {
	var out []string
	for _, p := range secrets {
		at := p.Text
		if p.Path != "" {
			at = p.Text + " at " + p.Path
		}
		out = append(out, at)
	}
	return "secrets would leave: " + strings.Join(out, "; ")
}

// Withhold takes the values that hold secrets out of arguments, for the record.
func Withhold(args json.RawMessage, secrets []sallyport.Part) json.RawMessage {
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
		return Withheld, true
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
	return Withheld, true
}
