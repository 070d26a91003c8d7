package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// sessionPattern is what a session may be called.
const sessionPattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`

var sessionName = regexp.MustCompile(sessionPattern)

// A SessionRun says in which session a command runs, and what.
type SessionRun struct {
	Owner      string // opaque: see owner
	Name       string
	Profile    string
	Language   string
	Code       string
	Background bool
}

func checkSession(name string) error {
	if sessionName.MatchString(name) {
		return nil
	}
	return refuse(sallyport.Invalid, "use 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit", "session: %.80q is no name of a session", name)
}

// owner tells principals apart: what one does is never in the session of
// another, whatever they call it. A user on whose behalf an agent acts counts.
func owner(who sallyport.Principal) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", who.Tenant, who.ID, who.OnBehalfOf))
	return hex.EncodeToString(sum[:])
}

// run is where the arguments want to run, nil for a sandbox of its own.
func (a arguments) run(job sallyport.Job, language string) *SessionRun {
	if a.session == "" {
		return nil
	}
	return &SessionRun{Owner: owner(job.Who), Name: a.session, Profile: job.Profile, Language: language, Code: a.code, Background: a.job}
}

// sessionRun is a command's session for the host. What the session was made with
// must be the same for each call of it.
func (b *Backend) sessionRun(c Command) *sandboxpb.SessionRun {
	s := c.Session
	if s == nil {
		return nil
	}
	l := c.Limits.Or(sallyport.DefaultLimits())
	inject := make([]string, 0, len(c.Inject))
	for _, i := range c.Inject {
		inject = append(inject, fmt.Sprintf("%q %q %q %q %q", i.Name, i.Host, i.Header, i.Prefix, i.Value))
	}
	reach := slices.Sorted(slices.Values(c.Reach))
	return &sandboxpb.SessionRun{
		Ref: &sandboxpb.SessionRef{Owner: s.Owner, Name: s.Name, Terms: []string{
			profileTerm(s.Profile), "tier=" + c.Tier, "image=" + c.Image, "network=" + strings.Join(reach, " "),
			"secrets=" + b.sealed(append(slices.Clone(c.Env), inject...)),
			fmt.Sprintf("limits=%d %d %d %g", l.Memory, l.Disk, l.Processes, l.CPUs),
		}},
		Language: s.Language, Code: []byte(s.Code), Background: s.Background, Secret: len(c.Env) > 0,
	}
}

func profileTerm(profile string) string { return "profile=" + profile }

// sealed is the same for the same words, and tells nothing of them.
func (b *Backend) sealed(words []string) string {
	if len(words) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, b.seal)
	fmt.Fprintf(mac, "%q", words)
	return hex.EncodeToString(mac.Sum(nil))
}

// sessionNotes is what a model should know of the session.
func sessionNotes(o Outcome) (notes []string) {
	switch {
	case o.Ended != "":
		notes = append(notes, fmt.Sprintf("The session %s is over with all that it held; the next call with its name begins a new one.", o.Session))
	case o.Job > 0:
		notes = append(notes, fmt.Sprintf("It runs in the background of the session %s as job %d. Read its output with sandbox_session: {\"action\":\"output\",\"session\":%q,\"job\":%d}.", o.Session, o.Job, o.Session, o.Job))
	case o.Lost:
		notes = append(notes, "The interpreter has ended, and its variables with it; the session's files are still there.")
	}
	if o.New {
		notes = append(notes, fmt.Sprintf("The session %s began with this call.", o.Session))
	}
	return notes
}
