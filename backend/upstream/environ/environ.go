// Package environ says what a server's program gets for its environment.
package environ

import (
	"slices"
	"strings"
)

// base are the ones that a server gets besides its own block.
var base = []string{"HOME", "LANG", "PATH", "TMPDIR", "TZ", "USER"}

// Of is the base variables found in gateway, then the block, whose
// entries win. Nothing else of the gateway's own environment gets through.
func Of(gateway, block []string) []string {
	var env []string
	own := map[string]bool{}
	for _, kv := range block {
		name, _, _ := strings.Cut(kv, "=")
		own[name] = true
	}
	for _, kv := range gateway {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(base, name) && !own[name] {
			env = append(env, kv)
		}
	}
	return append(env, block...)
}
