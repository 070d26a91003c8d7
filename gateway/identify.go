package gateway

import (
	"context"

	"sallyport.dev/sallyport"
)

// An identity is a caller whose credential was verified.
type identity struct{ who sallyport.Principal }

func (g *Gateway) authenticate(ctx context.Context, rec *record, profile, bearer string) (identity, error) {
	rec.at(sallyport.Authenticate)
	who, err := g.Authenticator.Authenticate(ctx, profile, bearer)
	if err != nil {
		return identity{}, at(sallyport.Authenticate, err)
	}
	r := &rec.Record
	r.Tenant, r.Principal, r.OnBehalfOf, r.Actor = who.Tenant, who.ID, who.OnBehalfOf, who.Actor
	return identity{who}, nil
}

// A guest is an identity that holds a slot until it leaves.
type guest struct {
	who   sallyport.Principal
	leave func()
}

func (g *Gateway) admit(rec *record, id identity, size int) (guest, error) {
	rec.at(sallyport.Admit)
	leave, err := g.Limiter.Admit(id.who, size)
	if err != nil {
		return guest{}, at(sallyport.Admit, err)
	}
	return guest{id.who, leave}, nil
}

// Identify only authenticates: for methods that ask for nothing else.
func (g *Gateway) Identify(ctx context.Context, credential, profile string) (sallyport.Principal, error) {
	who, err := g.Authenticator.Authenticate(ctx, profile, credential)
	return who, at(sallyport.Authenticate, err)
}

// List authenticates, admits, and returns the tools that the caller may see:
// those that the same policies which decide calls let it list.
func (g *Gateway) List(ctx context.Context, credential, profile string, size int) (sallyport.Principal, []sallyport.Tool, error) {
	who, err := g.Identify(ctx, credential, profile)
	if err != nil {
		return who, nil, err
	}
	leave, err := g.Limiter.Admit(who, size)
	if err != nil {
		return who, nil, at(sallyport.Admit, err)
	}
	defer leave()
	all, err := g.Catalog.List(profile)
	if err != nil {
		return who, nil, at(sallyport.Resolve, err)
	}
	seen := make([]sallyport.Tool, 0, len(all))
	for _, t := range all {
		if t.Status == sallyport.ToolActive && g.visible(who, profile, t) {
			seen = append(seen, t)
		}
	}
	return who, seen, nil
}

func (g *Gateway) visible(who sallyport.Principal, profile string, t sallyport.Tool) bool {
	v, err := g.Authorizer.Authorize(Question{Who: who, Profile: profile, Action: ActionList, Tool: t})
	return err == nil && v.Allow
}
