package sallyport

import "time"

// A Principal is an authenticated caller: one agent of one tenant, perhaps on
// behalf of a user.
type Principal struct {
	Tenant     string
	ID         string   // agent id, unique in the tenant
	Roles      []string // sorted; agents never hold admin roles
	OnBehalfOf string   // user the agent acts for, "" if none
	Actor      string   // operator who obtained the token for the agent, "" if the agent itself
	TokenID    string   // jti of the credential
	Expires    time.Time
}

// DefaultTenant is the tenant of a gateway that serves only one.
const DefaultTenant = "default"

// An Agent is the stored record of a caller.
type Agent struct {
	Tenant     string    `json:"tenant"`
	ID         string    `json:"id"`
	Roles      []string  `json:"roles"`
	SecretHash string    `json:"-"`      // of the client secret; see oauth
	State      string    `json:"state"`  // "active", "suspended", "revoked"
	Source     string    `json:"source"` // "database" or "configuration"
	CreatedAt  time.Time `json:"created_at"`
	NotBefore  time.Time `json:"not_before,omitzero"` // tokens issued before this are refused (rotate, revoke)
}

// An Admin is a human who may decide tickets and change the gateway.
type Admin struct {
	Tenant       string    `json:"tenant"`
	Name         string    `json:"name"`
	Groups       []string  `json:"groups"`
	PasswordHash string    `json:"-"`
	CreatedAt    time.Time `json:"created_at"`
}
