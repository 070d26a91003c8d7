// Package entry is one server as its operator entered it, whether it can be used, and
// how it does.
package entry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/given"
)

// A Config is one server, as the operator wrote it.
type Config struct {
	Name      string            // letters, digits, _ and -
	Argv      []string          // of a program, or
	URL       string            // of a streamable HTTP endpoint
	Env       []string          // "NAME=value", besides the base variables
	Header    http.Header       // sent with each request, e.g. Authorization
	HTTP      http.RoundTripper // how its requests go out; nil is Options.HTTP
	Apart     Apart             // whose calls take other connections; nil is nobody's
	Isolation string            // which launcher starts the program

	// Given reads Env, Header and Confinement.Inject anew, where secrets are in them that
	// may be changed; nil where they stay.
	Given given.Source

	// Credential identifies what Env or Header hold (never its value), for
	// approvals and the record.
	Credential string

	MaxMessage int // bytes of one message from it; 0 is Options.MaxMessage

	// Lazy servers start with the first call, others at once.
	Lazy bool

	Confinement sallyport.Confinement // of a program in a sandbox

	Processes Processes // of a program: how many it is

	Calls int           // at once; 0 is Options.Calls
	Queue int           // calls that may wait for those; 0 is Options.Queue
	Wait  time.Duration // of those; 0 is Options.Wait
	Idle  time.Duration // after which a program without calls is stopped, until the next one; 0 is never
}

// Processes say how many a program is.
type Processes string

// How many processes a program is.
const (
	Each Processes = "each" // one for each caller, who alone sees what it keeps; "" is the same
	One  Processes = "one"  // callers share what it keeps, and it asks none of them while they do
)

// An Apart says for whom a call is made, "" for the gateway, and by which way.
type Apart func(who sallyport.Principal) (key string, way http.RoundTripper, err error)

// Wrong says what cannot be used.
func (c Config) Wrong(format string, args ...any) error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Execute,
		Message: fmt.Sprintf("server %.80q: %s", c.Name, fmt.Sprintf(format, args...)),
		Hint:    "correct servers in sallyport.yaml",
	}
}

// Check says why a server cannot be used, where programs are started in such isolations.
func (c Config) Check(isolations []string) error {
	if c.Name == "" || len(c.Name) > 64 || strings.Trim(c.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return c.Wrong("a name has 1 to 64 characters of A-Z a-z 0-9 _ -")
	}
	switch {
	case len(c.Argv) > 0 && c.URL != "":
		return c.Wrong("it has a command and a url; keep one")
	case c.URL != "":
		u, err := url.Parse(c.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return c.Wrong("its url must begin with https:// or http://")
		}
		if u.User != nil {
			return c.Wrong("its url holds a password; use a header with a stored secret")
		}
		return nil
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return c.Wrong("it has neither a command nor a url")
	}
	for _, s := range slices.Concat(c.Argv, c.Env) {
		if strings.ContainsRune(s, 0) {
			return c.Wrong("its command or environment holds a zero byte")
		}
	}
	for _, kv := range c.Env {
		if i := strings.IndexByte(kv, '='); i <= 0 {
			return c.Wrong("an entry of its environment is not NAME=value")
		}
	}
	if !slices.Contains(isolations, c.Isolation) {
		return c.Wrong("isolation %.40q is not available here; available: %s", c.Isolation, strings.Join(isolations, ", "))
	}
	return nil
}

// Isolated says how it is kept apart: by which launcher, or "remote" behind a URL.
func (c Config) Isolated() string {
	if c.URL != "" {
		return "remote"
	}
	return c.Isolation
}

// Endpoint identifies where calls go: the URL, or the digest of the command and
// of what it may reach and see.
func (c Config) Endpoint() string {
	if c.URL != "" {
		return c.URL
	}
	what := append([]string{c.Isolation}, c.Argv...)
	what = append(what, c.Confinement.Egress...)
	for _, r := range c.Confinement.Roots {
		what = append(what, fmt.Sprintf("root %q %t", r.Path, r.Writable))
	}
	b, err := json.Marshal(what)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
