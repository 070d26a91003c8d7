package gateway

import (
	"encoding/json"

	"sallyport.dev/sallyport"
)

// A Library holds what can be read: the resources, templates and prompts of
// servers. (catalog/library)
type Library interface {
	// Find finds a thing by its exposed name or address. Of a resource it needs
	// not be listed: its server knows. The error is code NotFound, never more.
	Find(profile string, shelf sallyport.Shelf, name string) (sallyport.Tool, error)

	// Shelf returns all of one list, sorted by name. The caller must not modify
	// it. whole is false while a server of the profile has not told what it has.
	Shelf(profile string, shelf sallyport.Shelf) (list []sallyport.Tool, whole bool)

	// Check checks canonical arguments of a reading.
	Check(tool sallyport.Tool, kind sallyport.Kind, args json.RawMessage) error

	// Address maps the addresses of resources in what a tool returned, or in what
	// was read, to those that the profile's callers know.
	Address(profile string, tool sallyport.Tool, content json.RawMessage) json.RawMessage
}

// find looks for what an operation is about.
func (g *Gateway) find(req sallyport.Request, name string) (sallyport.Tool, error) {
	shelf, ok := shelfOf(req.Operation)
	switch {
	case !ok:
		return sallyport.Tool{}, &sallyport.Error{
			Code: sallyport.Invalid, Message: "params.ref must be {\"type\": \"ref/prompt\", \"name\": …} or {\"type\": \"ref/resource\", \"uri\": …}",
			Hint: "name a prompt, or a resource template",
		}
	case shelf == "":
		return g.Catalog.Resolve(req.Profile, name)
	case g.Library == nil:
		return sallyport.Tool{}, &sallyport.Error{Code: sallyport.NotFound}
	}
	return g.Library.Find(req.Profile, shelf, name)
}

// shelfOf is where the target of an operation stands, "" if it is a tool.
func shelfOf(op sallyport.Operation) (shelf sallyport.Shelf, ok bool) {
	switch op.Kind {
	case sallyport.ReadResource, sallyport.Subscribe:
		return sallyport.Resources, true
	case sallyport.GetPrompt:
		return sallyport.Prompts, true
	case sallyport.Complete:
		var in struct {
			Ref struct {
				Type string `json:"type"`
			} `json:"ref"`
		}
		canonical, err := sallyport.Canonical(op.Args)
		if err != nil || json.Unmarshal(canonical, &in) != nil {
			return "", false
		}
		shelf, ok := map[string]sallyport.Shelf{"ref/prompt": sallyport.Prompts, "ref/resource": sallyport.Templates}[in.Ref.Type]
		return shelf, ok
	default:
		return "", true
	}
}

// filled are canonical arguments with those that the profile gives. What could go
// on in another one is not told: it would be another's.
func (t target) filled(canonical json.RawMessage) (json.RawMessage, error) {
	if t.req.Operation.Kind == sallyport.Complete && len(t.tool.Fixed) > 0 {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "there are no completions for a prompt with fixed arguments", Hint: "write the arguments out"}
	}
	return t.tool.Fill(canonical, t.ours)
}

// fits checks canonical arguments.
func (g *Gateway) fits(t target, canonical json.RawMessage) error {
	if t.tool.Shelf == "" {
		return g.Catalog.Validate(t.tool, canonical)
	}
	return g.Library.Check(t.tool, t.req.Operation.Kind, canonical)
}

// unasked refuses a reading that needs a human: who reads does not wait.
func (p permit) unasked() error {
	if p.tool.Shelf == "" || !p.needsHuman() {
		return nil
	}
	return &sallyport.Error{
		Code: sallyport.Denied, Step: sallyport.Authorize,
		Message: "a human would have to approve this, and a reading cannot wait for one",
		Hint:    "have a tool read it, or ask an operator to change policies/*.cedar",
	}
}

// actionOf is what policies are asked about a call, or a reading.
func actionOf(t sallyport.Tool) Action {
	if t.Shelf != "" {
		return ActionRead
	}
	return ActionCall
}

// addressed gives the addresses in an output the form that the caller knows.
func (g *Gateway) addressed(profile string, out output) sallyport.Output {
	if g.Library != nil && out.tool.Origin.Server != "" {
		out.Content = g.Library.Address(profile, out.tool, out.Content)
	}
	return out.Output
}
