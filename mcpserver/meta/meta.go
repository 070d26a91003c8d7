// Package meta says which values clients may give for what requests carry beside
// their parameters.
package meta

import (
	"bytes"
	"encoding/json"
)

// ProgressToken reports whether a value is one: a string or an integer, like an id.
func ProgressToken(v json.RawMessage) bool {
	return v[0] == '"' || (v[0] == '-' || v[0] >= '0' && v[0] <= '9') && !bytes.ContainsAny(v, ".eE")
}
