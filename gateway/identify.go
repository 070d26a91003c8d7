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
	rec.leave = leave
	return guest{id.who, leave}, nil
}

// Identify only authenticates: for methods that ask for nothing else.
func (g *Gateway) Identify(ctx context.Context, credential, profile string) (sallyport.Principal, error) {
	who, err := g.Authenticator.Authenticate(ctx, profile, credential)
	return who, at(sallyport.Authenticate, err)
}

// List authenticates, admits, and returns what of a list the caller may see:
// the tools ("") that the same policies which decide calls let it list, or the
// things of a shelf that they let it read.
func (g *Gateway) List(ctx context.Context, credential, profile string, shelf sallyport.Shelf, size int) (sallyport.Sight, error) {
	who, leave, err := g.Enter(ctx, credential, profile, size)
	if err != nil {
		return sallyport.Sight{}, err
	}
	defer leave()
	return g.See(who, profile, shelf)
}

// Enter authenticates and admits: for what looks through lists. The caller must
// call leave.
func (g *Gateway) Enter(ctx context.Context, credential, profile string, size int) (who sallyport.Principal, leave func(), err error) {
	if who, err = g.Identify(ctx, credential, profile); err != nil {
		return who, nil, err
	}
	leave, err = g.Limiter.Admit(who, size)
	return who, leave, at(sallyport.Admit, err)
}

// See is what of a list a principal may see.
func (g *Gateway) See(who sallyport.Principal, profile string, shelf sallyport.Shelf) (sallyport.Sight, error) {
	var all []sallyport.Tool
	whole := true
	if g.Library != nil {
		all, whole = g.Library.Shelf(profile, shelf)
	}
	if shelf == "" {
		var err error
		if all, err = g.Catalog.List(profile); err != nil {
			return sallyport.Sight{}, at(sallyport.Resolve, err)
		}
	}
	sight := sallyport.Sight{Who: who, List: make([]sallyport.Tool, 0, len(all)), Incomplete: !whole}
	for _, t := range all {
		if t.Status == sallyport.ToolActive && g.visible(who, profile, t) {
			sight.List = append(sight.List, t)
		}
	}
	sight.Fold()
	return sight, nil
}

// Sees reports whether a principal may read a resource, and which it is.
func (g *Gateway) Sees(who sallyport.Principal, profile, address string) (sallyport.Tool, bool) {
	if g.Library == nil {
		return sallyport.Tool{}, false
	}
	t, err := g.Library.Find(profile, sallyport.Resources, address)
	return t, err == nil && g.visible(who, profile, t)
}

// visible: who may read a thing may know of it, and nobody else.
func (g *Gateway) visible(who sallyport.Principal, profile string, t sallyport.Tool) bool {
	q := Question{Who: who, Profile: profile, Action: ActionList, Tool: t}
	if t.Shelf != "" {
		q.Action = ActionRead
		if t.Shelf == sallyport.Resources {
			q.Args = sallyport.ReadArgs(t.Origin.Name)
		}
	}
	v, err := g.Authorizer.Authorize(q)
	return err == nil && v.Allow
}
