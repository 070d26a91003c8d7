// Package vault keeps what the gateway holds at the authorization servers of its
// upstreams: registrations, grants with their tokens, and logins under way. All of
// it is sealed under the secrets' key, and bound to its tenant, server, kind and
// name, so that one cannot stand for another.
package vault

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// The kinds of what is kept, and the version of a Place that replaces whatever there is.
const (
	Issuer = store.HoldsIssuer
	Client = store.HoldsClient
	Grant  = store.HoldsGrant
	Login  = store.HoldsLogin
	Any    = store.Any
)

// A Store keeps sealed holdings. (store/holdings)
type Store interface {
	Holding(ctx context.Context, tenant, server, kind, name string) (store.Holding, error)
	Holdings(ctx context.Context, tenant, server, kind string) ([]store.Holding, error)
	Put(ctx context.Context, h store.Holding, entry *sallyport.Entry) (version int64, err error)
	Delete(ctx context.Context, tenant, server, kind, name string, entry *sallyport.Entry) (int64, error)
	Take(ctx context.Context, tenant, server, kind, name string, now time.Time) (store.Holding, error)
}

// A Vault is the holdings of one tenant.
type Vault struct {
	Tenant string
	Store  Store
	Box    store.Box
}

// A Place names one holding, and says what it was when it was read.
type Place struct {
	Server, Kind, Name string

	Version   int64  // 0: there is none; Any: whatever there is
	Holder    string // who refreshes it now
	HeldUntil time.Time
	ExpiresAt time.Time
	UpdatedAt time.Time
}

func row(p Place) string { return strings.Join([]string{"holding", p.Server, p.Kind, p.Name}, "\x00") }

// Load reads a holding into v. One that is not there leaves v alone, and has
// version 0.
func (v Vault) Load(ctx context.Context, p Place, into any) (Place, error) {
	h, err := v.Store.Holding(ctx, v.Tenant, p.Server, p.Kind, p.Name)
	if sallyport.CodeOf(err) == sallyport.NotFound {
		p.Version, p.Holder, p.HeldUntil = 0, "", time.Time{}
		return p, nil
	}
	if err != nil {
		return p, err
	}
	return v.open(h, into)
}

func (v Vault) open(h store.Holding, into any) (Place, error) {
	p := Place{Server: h.Server, Kind: h.Kind, Name: h.Name, Version: h.Version, Holder: h.Holder, HeldUntil: h.HeldUntil, ExpiresAt: h.ExpiresAt, UpdatedAt: h.UpdatedAt}
	plain, err := v.Box.Open(v.Tenant, row(p), h.Body)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(plain, into)
}

// Save stores a holding if nobody changed it since p was read, else it returns
// code Conflict. It returns p as it is now.
func (v Vault) Save(ctx context.Context, p Place, body any, entry *sallyport.Entry) (Place, error) {
	plain, err := json.Marshal(body)
	if err != nil {
		return p, err
	}
	version, err := v.Store.Put(ctx, store.Holding{
		Tenant: v.Tenant, Server: p.Server, Kind: p.Kind, Name: p.Name, Version: p.Version, Holder: p.Holder, HeldUntil: p.HeldUntil, ExpiresAt: p.ExpiresAt,
		Body: v.Box.Seal(v.Tenant, row(p), plain),
	}, entry)
	if err == nil {
		p.Version = version
	}
	return p, err
}

// Take reads a holding into v and deletes it: of several callers one gets it.
func (v Vault) Take(ctx context.Context, p Place, into any, now time.Time) error {
	h, err := v.Store.Take(ctx, v.Tenant, p.Server, p.Kind, p.Name, now)
	if err == nil {
		_, err = v.open(h, into)
	}
	return err
}

// Delete forgets holdings of a server; an empty kind or name means all.
func (v Vault) Delete(ctx context.Context, server, kind, name string, entry *sallyport.Entry) (int64, error) {
	return v.Store.Delete(ctx, v.Tenant, server, kind, name, entry)
}

// Each reads every holding of a kind; of one server, or of all if it is "". One
// that cannot be opened is passed with its error.
func Each[T any](ctx context.Context, v Vault, server, kind string, visit func(Place, T, error)) error {
	all, err := v.Store.Holdings(ctx, v.Tenant, server, kind)
	if err != nil {
		return err
	}
	for _, h := range all {
		var body T
		p, err := v.open(h, &body)
		visit(p, body, err)
	}
	return nil
}
