package sallyport

import (
	"encoding/json"
	"strconv"
	"strings"
)

// At returns the value that a JSON Pointer (RFC 6901) names, byte for byte, and
// whether there is one. "" names the whole document.
func At(doc json.RawMessage, pointer string) (json.RawMessage, bool) {
	if pointer == "" {
		return doc, len(doc) > 0
	}
	if pointer[0] != '/' {
		return nil, false
	}
	for _, token := range strings.Split(pointer[1:], "/") {
		token = PointerName(token)
		var members map[string]json.RawMessage
		var items []json.RawMessage
		switch {
		case json.Unmarshal(doc, &members) == nil && members != nil:
			v, ok := members[token]
			if !ok {
				return nil, false
			}
			doc = v
		case json.Unmarshal(doc, &items) == nil:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(items) || strconv.Itoa(i) != token {
				return nil, false
			}
			doc = items[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

var (
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// PointerToken writes a member's name as one token of a JSON Pointer.
func PointerToken(name string) string { return escape.Replace(name) }

// PointerName is the member's name that a token of a JSON Pointer stands for.
func PointerName(token string) string { return unescape.Replace(token) }
