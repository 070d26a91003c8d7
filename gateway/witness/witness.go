// Package witness says what looks at a call's target tell of its approval: whether
// the target is still what was approved, and what no look has seen.
package witness

import (
	"encoding/json"
	"fmt"
	"slices"

	"sallyport.dev/sallyport"
)

// Changed says what is no longer as it was when the ticket was opened, or "".
func Changed(was, now []sallyport.Observation) string {
	if len(was) != len(now) {
		return "the manifest names other witnesses now"
	}
	for i, o := range was {
		n := now[i]
		switch {
		case o.Name != n.Name || o.Binds != n.Binds:
			return "the manifest names other witnesses now"
		case o.Hash != n.Hash:
			return fmt.Sprintf("%s has changed since the ticket was opened: %s → %s", o.Name, o.Value, n.Value)
		}
	}
	return ""
}

// Unbound lists the arguments that refer to content elsewhere, whose content
// no witness has seen: it can change behind an approval.
func Unbound(m sallyport.Manifest, args json.RawMessage) []string {
	var out []string
	for _, f := range m.Fields {
		if f.Kind != "path" && f.Kind != "url" && f.Kind != "reference" {
			continue
		}
		v, there := sallyport.At(args, f.Path)
		if !there || string(v) == "null" || slices.Contains(out, f.Path) ||
			slices.ContainsFunc(m.Witness, func(w sallyport.Witness) bool { return w.Binds == f.Path }) {
			continue
		}
		out = append(out, f.Path)
	}
	return out
}
