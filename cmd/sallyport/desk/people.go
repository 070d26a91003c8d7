package desk

import (
	"context"
	"time"

	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/oauth"
)

// Logins remembers logged-in humans.
type Logins struct {
	Tenant string
	Logins *oauth.Logins
}

func loginPeer(p adminapi.Peer) oauth.Peer {
	return oauth.Peer{UID: uint32(p.UID), Session: int(p.Session), Started: p.Started}
}

// Login remembers who sits at a terminal, for oauth.LoginLifetime.
func (d Logins) Login(ctx context.Context, p adminapi.Peer, name, password string) (time.Time, error) {
	_, err := d.Logins.Login(ctx, d.Tenant, name, password, loginPeer(p))
	return time.Now().Add(oauth.LoginLifetime), err
}

// Check returns the name of who has logged in at a terminal.
func (d Logins) Check(ctx context.Context, p adminapi.Peer) (string, error) {
	a, err := d.Logins.Check(ctx, loginPeer(p))
	return a.Name, err
}

// Logout forgets who has logged in at a terminal.
func (d Logins) Logout(p adminapi.Peer) { d.Logins.Logout(loginPeer(p)) }
