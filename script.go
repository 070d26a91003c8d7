package sallyport

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A script is a call of a tool that runs the caller's code, which names in its
// argument "tools" what that code may call while it runs. Each such call is an
// inner call: one of its own, on the whole path, whose record names the script's.

// ScriptDoor is the door that inner calls come in by.
const ScriptDoor = "script"

// MetaUntrusted is the member of a result's _meta that says that strangers wrote
// it, or part of it.
const MetaUntrusted = "dev.sallyport/untrusted"

// ScriptKeyPrefix begins the key of every inner call: no caller may send one that
// begins so.
const ScriptKeyPrefix = "script_"

// scriptDigits is how much of a hash stands in the keys of inner calls, in hex.
const scriptDigits = 32

// ScriptRoot begins the keys of all inner calls of a script: it is the same when
// the script is run again under its key for the same user.
func ScriptRoot(script ReservationKey, user string) string {
	chosen, _, _ := strings.Cut(script.Key, Scope)
	return ScriptKeyPrefix + hashed(script.Tenant, script.Principal, script.Tool, chosen, user)
}

// ScriptKey is the key of the n-th inner call, from 1: of a tool with canonical
// arguments.
func ScriptKey(root string, n int, tool string, args json.RawMessage) string {
	return root + "/" + strconv.Itoa(n) + "/" + hashed(tool, string(args))
}

// ParseScriptKey takes apart the key of an inner call. ok is false for any other.
func ParseScriptKey(key string) (root string, n int, ok bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 3 || !strings.HasPrefix(key, ScriptKeyPrefix) {
		return "", 0, false
	}
	n, err := strconv.Atoi(parts[1])
	return parts[0], n, err == nil
}

func hashed(words ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", words))
	return hex.EncodeToString(sum[:])[:scriptDigits]
}

// ScriptTools are the tools that a call lets its code call, by exposed name; *
// at the end of one stands for any rest. None: the call is no script.
func ScriptTools(t Tool, args json.RawMessage) []string {
	if t.Code == nil || t.Code.Source != "" || !bytes.Contains(args, []byte(`"tools"`)) {
		return nil
	}
	var in struct {
		Tools []string `json:"tools"`
	}
	if json.Unmarshal(args, &in) != nil {
		return nil
	}
	return in.Tools
}

// A ScriptCall is one inner call, as the script's own result tells it.
type ScriptCall struct {
	N      int    `json:"n"`
	Tool   string `json:"tool"`
	CallID string `json:"call_id,omitempty"`
	Replay bool   `json:"replay,omitempty"` // an earlier run of the script did it
	Code   Code   `json:"code,omitempty"`   // "" = the tool answered
	Failed bool   `json:"is_error,omitempty"`
	Ticket string `json:"ticket,omitempty"`
}
