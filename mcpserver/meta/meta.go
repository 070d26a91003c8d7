// Package meta says which values clients may give for what requests carry beside
// their parameters.
package meta

import (
	"bytes"
	"encoding/json"
)

// Most bounds an id and a progress token in bytes: they come back with each message of
// what may be many.
const Most = 1024

// ProgressToken reports whether a value is one: a string or an integer, like an id.
func ProgressToken(v json.RawMessage) bool {
	if len(v) > Most {
		return false
	}
	return v[0] == '"' || (v[0] == '-' || v[0] >= '0' && v[0] <= '9') && !bytes.ContainsAny(v, ".eE")
}
