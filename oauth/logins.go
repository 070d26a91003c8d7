package oauth

import (
	"context"
	"strconv"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/limit/gcra"
)

// Admins finds admins. The store implements it.
type Admins interface {
	// Admin returns the admin, or an error with code NotFound.
	Admin(ctx context.Context, tenant, name string) (sallyport.Admin, error)
}

// LoginLifetime is how long a login is remembered.
const LoginLifetime = 10 * time.Minute

// maxLogins bounds the logins remembered at once.
const maxLogins = 1024

// A Peer is who is at the other end of the admin socket, as the kernel tells.
type Peer struct {
	UID     uint32
	Session int // POSIX session id; 0 or less is no session
	// Started is when the session's leader started, in whatever unit the
	// reader has; it tells a session from a later one with the same id.
	Started uint64
}

// Logins remembers which admin logged in from which session of which user. It
// is in memory only: when the gateway stops, everybody is logged out. It is
// safe for concurrent use.
type Logins struct {
	admins Admins
	now    func() time.Time
	decoy  string        // hash to check for a name that is nobody's
	failed *gcra.Table   // failures of one user with one name
	byUser *gcra.Table   // failures of one user with any name
	one    chan struct{} // one password check at a time: each takes 64 MiB

	mu       sync.Mutex
	sessions map[Peer]session
}

type session struct {
	tenant, name string
	hash         string // of the password then: a new password ends the login
	until        time.Time
}

// NewLogins returns an empty memory. now may be nil.
func NewLogins(admins Admins, now func() time.Time) *Logins {
	if now == nil {
		now = time.Now
	}
	return &Logins{
		admins: admins, now: now, decoy: nobodysHash(),
		failed:   gcra.NewTable(gcra.Rate{Every: 10 * time.Second, Burst: 5}, 4096),
		byUser:   gcra.NewTable(gcra.Rate{Every: 3 * time.Second, Burst: 20}, 4096),
		one:      make(chan struct{}, 1),
		sessions: make(map[Peer]session),
	}
}

// Login checks the password and remembers the admin for the peer, for
// LoginLifetime from now. Codes: Unauthenticated (whatever of name and password
// is wrong), RateLimited, Invalid for a peer without a session.
func (l *Logins) Login(ctx context.Context, tenant, name, password string, peer Peer) (sallyport.Admin, error) {
	if peer.Session <= 0 {
		return sallyport.Admin{}, &sallyport.Error{
			Code: sallyport.Invalid, Step: sallyport.Authenticate,
			Message: "a login belongs to a session, and this caller has none", Hint: "log in from a terminal",
		}
	}
	admin, err := l.check(ctx, tenant, name, password, peer)
	if err != nil {
		return sallyport.Admin{}, err
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, s := range l.sessions {
		if !now.Before(s.until) {
			delete(l.sessions, p)
		}
	}
	if _, again := l.sessions[peer]; !again && len(l.sessions) >= maxLogins {
		return sallyport.Admin{}, tooMany("too many people are logged in", time.Minute)
	}
	l.sessions[peer] = session{tenant, name, admin.PasswordHash, now.Add(LoginLifetime)}
	return admin, nil
}

// check verifies a password, slowly, and counts failures by name and user.
func (l *Logins) check(ctx context.Context, tenant, name, password string, peer Peer) (sallyport.Admin, error) {
	select {
	case l.one <- struct{}{}:
		defer func() { <-l.one }()
	case <-ctx.Done():
		return sallyport.Admin{}, ctx.Err()
	}
	user := strconv.FormatUint(uint64(peer.UID), 10)
	key := user + "\x00" + tenant + "\x00" + name
	if wait := max(l.failed.Wait(key, l.now()), l.byUser.Wait(user, l.now())); wait > 0 {
		return sallyport.Admin{}, tooMany("too many failed logins", wait)
	}
	admin, err := l.admins.Admin(ctx, tenant, name)
	if err != nil && sallyport.CodeOf(err) != sallyport.NotFound {
		return sallyport.Admin{}, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Authenticate,
			Message: "admins cannot be looked up now", Hint: "try again", Err: err,
		}
	}
	hash := admin.PasswordHash
	if err != nil {
		hash = l.decoy // takes as long as for a name that exists
	}
	if !passwordMatches(password, hash) || err != nil {
		l.failed.Add(key, l.now())
		l.byUser.Add(user, l.now())
		return sallyport.Admin{}, unauthenticated("unknown name or wrong password", "`sallyport init` showed the first admin's password once", err)
	}
	return admin, nil
}

// Check returns the admin who is logged in at the peer. An admin who was
// removed, or has a new password, is not. Codes: Unauthenticated, Unavailable.
func (l *Logins) Check(ctx context.Context, peer Peer) (sallyport.Admin, error) {
	l.mu.Lock()
	s, ok := l.sessions[peer]
	if ok && !l.now().Before(s.until) {
		delete(l.sessions, peer)
		ok = false
	}
	l.mu.Unlock()
	if !ok || peer.Session <= 0 {
		return sallyport.Admin{}, unauthenticated("nobody is logged in here", "run `sallyport login`", nil)
	}
	admin, err := l.admins.Admin(ctx, s.tenant, s.name)
	if err != nil && sallyport.CodeOf(err) != sallyport.NotFound {
		return sallyport.Admin{}, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Authenticate,
			Message: "admins cannot be looked up now", Hint: "try again", Err: err,
		}
	}
	if err != nil || admin.PasswordHash != s.hash {
		l.Logout(peer)
		return sallyport.Admin{}, unauthenticated("the login is over: the admin was removed or has a new password", "run `sallyport login`", err)
	}
	return admin, nil
}

// Logout forgets the peer's login.
func (l *Logins) Logout(peer Peer) {
	l.mu.Lock()
	delete(l.sessions, peer)
	l.mu.Unlock()
}

func tooMany(what string, wait time.Duration) error {
	return &sallyport.Error{
		Code: sallyport.RateLimited, Step: sallyport.Authenticate, Message: what,
		Hint: "wait for retry_after and try again", RetryAfter: wait,
	}
}
