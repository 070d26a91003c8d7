package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/change"
)

// Approve pins an upstream tool as it is now, lifts its quarantine, and accepts
// what there is to be wary of in it: that is not shown again unless it changes. want is
// the digest that the operator looked at; "" stands for whatever is current.
func (c *Catalog) Approve(ctx context.Context, name, want string) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	remarks := c.remarks(name)
	c.mu.Lock()
	e, s, _ := c.find(name)
	c.mu.Unlock()
	switch {
	case e == nil:
		return &sallyport.Error{
			Code: sallyport.NotFound, Step: sallyport.Resolve,
			Message: fmt.Sprintf("no upstream tool is called %.*q", MaxName, name),
			Hint:    "list the tools; the gateway's own need no approval",
		}
	case e.broken:
		return fault("tool %q cannot be approved: %s", name, e.tool.StatusReason)
	case want != "" && want != e.tool.Digest:
		return Moved(name)
	}
	pin := e.approved()
	pin.Accepted = remarks
	if err := c.pins.PutPins(ctx, e.tool.Origin.Server, map[string]Pin{e.tool.Origin.Name: pin}); err != nil {
		return Unstored(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(s.server, e.tool.Origin.Name, pin)
	c.publish()
	return nil
}

// Moved says that an approval is of something that is not there any more.
func Moved(name string) error {
	return &sallyport.Error{
		Code: sallyport.Conflict, Step: sallyport.Resolve,
		Message: fmt.Sprintf("%q changed again since you looked at it", name), Hint: "look at the difference once more",
	}
}

// Unstored says that a pin could not be kept.
func Unstored(err error) error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Resolve,
		Message: "the pin cannot be stored", Hint: "see the gateway's log", Err: err,
	}
}

// find looks an upstream tool up by exposed name, before refinement.
// Preconditions: c.mu is held.
func (c *Catalog) find(name string) (*entry, *source, int) {
	published := c.now.Load().entries[name]
	if published == nil {
		return nil, nil, 0
	}
	s := c.sources[published.tool.Origin.Server]
	if s == nil {
		return nil, nil, 0
	}
	for i, e := range s.entries {
		if e.tool.Origin.Name == published.tool.Origin.Name {
			return e, s, i
		}
	}
	return nil, nil, 0
}

// Of reports whether a pin is of this server, and not of another that had its name.
func (p Pin) Of(o sallyport.Origin) bool { return p.Endpoint == "" || p.Endpoint == o.Endpoint }

// A Difference is what became of a tool since it was pinned.
type Difference struct {
	Lines   string // readable, one place each; "" means none
	Digest  string // of what the tool is now
	Pinned  string // version that is pinned, "" if nothing is
	Next    string // version after an approval
	Kind    change.Kind
	Reasons []string // why it is breaking or compatible
	Remarks []string // what to be wary of
}

// Diff tells how a tool differs from its pin.
func (c *Catalog) Diff(name string) (Difference, error) {
	c.mu.Lock()
	e, _, _ := c.find(name)
	c.mu.Unlock()
	if e == nil {
		return Difference{}, &sallyport.Error{
			Code: sallyport.NotFound, Step: sallyport.Resolve,
			Message: fmt.Sprintf("no upstream tool is called %.*q", MaxName, name),
			Hint:    "list the tools",
		}
	}
	if e.broken {
		return Difference{}, fault("tool %q is %s", name, e.tool.StatusReason)
	}
	d := Difference{
		Lines: change.Lines(e.pinned.Definition, e.current), Digest: e.tool.Digest, Pinned: e.pinned.Version,
		Next: e.approved().Version, Remarks: c.Remarks()[name],
	}
	if e.pinned.Definition != nil {
		v := change.Compare(e.pinned.Definition, e.current)
		d.Kind, d.Reasons = v.Kind, v.Reasons
	}
	return d, nil
}

// approved is the pin that an approval makes of what the tool is now.
func (e *entry) approved() Pin {
	p := Pin{Definition: e.current, Version: change.First, Endpoint: e.tool.Origin.Endpoint}
	if e.pinned.Definition != nil {
		p.Version = change.Next(e.pinned.Version, change.Compare(e.pinned.Definition, e.current).Kind)
	}
	return p
}

// Recheck looks whether what is quarantined here because it changed was approved
// elsewhere, at another gateway with the same store. Calls go on meanwhile.
func (c *Catalog) Recheck(ctx context.Context) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	var waiting []sallyport.Tool
	c.mu.Lock()
	for _, s := range c.sources {
		for _, e := range s.entries {
			if e.tool.Status == sallyport.ToolQuarantined && !e.broken {
				waiting = append(waiting, e.tool)
			}
		}
	}
	c.mu.Unlock()
	var errs []error
	released := map[[2]string]Pin{}
	for _, t := range waiting {
		pin, err := c.pins.GetPin(ctx, t.Origin.Server, t.Origin.Name)
		if errs = append(errs, err); err == nil && pin.Definition != nil && digest(pin.Definition) == t.Digest && pin.Of(t.Origin) {
			released[[2]string{t.Origin.Server, t.Origin.Name}] = pin
		}
	}
	if len(released) > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		for origin, pin := range released { // changing is held: nothing has moved
			c.release(origin[0], origin[1], pin)
		}
		c.publish()
	}
	return errors.Join(errs...)
}

// release lifts the quarantine of a tool whose pin is what it is.
// Preconditions: c.mu is held.
func (c *Catalog) release(server, tool string, pin Pin) {
	s := *c.sources[server]
	s.entries = slices.Clone(s.entries)
	for i, e := range s.entries {
		if e.tool.Origin.Name != tool {
			continue
		}
		fresh := *e
		fresh.pinned = pin
		fresh.tool.Status, fresh.tool.StatusReason, fresh.tool.Version = sallyport.ToolActive, "", pin.Version
		s.entries[i] = &fresh
	}
	c.sources[server] = &s
}
