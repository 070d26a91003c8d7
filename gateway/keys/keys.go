// Package keys knows under which keys calls are remembered, and which of them
// callers may choose.
package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"sallyport.dev/sallyport"
)

// Own tells whether the gateway itself chooses the keys of a door's calls.
func Own(door string) bool { return door == "saga" || door == sallyport.ScriptDoor }

// Check refuses a key that a caller cannot use.
func Check(door, key string) error {
	if key == "" || Own(door) {
		return nil
	}
	if err := sallyport.CheckKey(key); err != nil {
		return err
	}
	for prefix, whose := range map[string]string{sallyport.SagaKeyPrefix: "steps of sagas", sallyport.ScriptKeyPrefix: "calls that scripts make"} {
		if strings.HasPrefix(key, prefix) {
			return &sallyport.Error{
				Code: sallyport.Invalid, Message: "keys that begin with " + prefix + " are those of " + whose,
				Hint: "use another idempotency key, such as a UUID",
			}
		}
	}
	return nil
}

// Scoped is a caller's key with the user for whom it is used. What the gateway
// itself chooses is the whole key.
func Scoped(door, key, user string) string {
	if key != "" && user != "" && !Own(door) {
		key += sallyport.Scope + user
	}
	return key
}

// Forwarded is the key as the tool's own server sees it. It begins with the
// caller's, so that people can find it there; what follows is the scope, since
// that server may know all callers by one credential and keep one set of keys.
func Forwarded(key sallyport.ReservationKey) string {
	chosen, _, _ := strings.Cut(key.Key, sallyport.Scope)
	scope := "-" + digest(digest(key.Tenant) + digest(key.Principal) + digest(key.Tool) + digest(key.Key))[:20]
	return chosen[:min(len(chosen), sallyport.MaxKey-len(scope))] + scope
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Owner stands for who may ask for a call's outcome.
func Owner(who sallyport.Principal, profile string) string {
	parts, _ := json.Marshal([]string{who.Tenant, who.ID, who.OnBehalfOf, profile}) // texts always marshal
	sum := sha256.Sum256(parts)
	return hex.EncodeToString(sum[:])
}
