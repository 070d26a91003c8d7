package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/change"
)

// Approve pins an upstream tool as it is now and lifts its quarantine. want is
// the digest that the operator looked at; "" stands for whatever is current.
func (c *Catalog) Approve(ctx context.Context, name, want string) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	e, s, i := c.find(name)
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
		return &sallyport.Error{
			Code: sallyport.Conflict, Step: sallyport.Resolve,
			Message: fmt.Sprintf("tool %q changed again since you looked at it", name),
			Hint:    "look at the difference once more",
		}
	}
	pin := e.approved()
	if err := c.pins.PutPin(ctx, e.tool.Origin.Server, e.tool.Origin.Name, pin); err != nil {
		return &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Resolve,
			Message: "the pin cannot be stored", Hint: "see the gateway's log", Err: err,
		}
	}
	c.release(s.server, i, pin)
	c.publish()
	return nil
}

// find looks an upstream tool up by exposed name, before refinement.
// Preconditions: c.mu is held.
func (c *Catalog) find(name string) (*entry, *source, int) {
	published := c.now.Load().views[""].entries[name]
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
	if e.pinned.Definition == nil {
		return Pin{e.current, change.First}
	}
	return Pin{e.current, change.Next(e.pinned.Version, change.Compare(e.pinned.Definition, e.current).Kind)}
}

// Recheck looks whether what is quarantined here because it changed was approved
// elsewhere, at another gateway with the same store.
func (c *Catalog) Recheck(ctx context.Context) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	released := false
	for _, s := range c.sources {
		for i, e := range s.entries {
			if e.tool.Status != sallyport.ToolQuarantined || e.broken {
				continue
			}
			pin, err := c.pins.GetPin(ctx, s.server, e.tool.Origin.Name)
			if errs = append(errs, err); err == nil && pin.Definition != nil && digest(pin.Definition) == e.tool.Digest {
				c.release(s.server, i, pin)
				released = true
			}
		}
	}
	if released {
		c.publish()
	}
	return errors.Join(errs...)
}

// release lifts the quarantine of a tool whose pin is what it is.
// Preconditions: c.mu is held.
func (c *Catalog) release(server string, i int, pin Pin) {
	s := *c.sources[server]
	s.entries = slices.Clone(s.entries)
	fresh := *s.entries[i]
	fresh.pinned = pin
	fresh.tool.Status, fresh.tool.StatusReason, fresh.tool.Version = sallyport.ToolActive, "", pin.Version
	s.entries[i] = &fresh
	c.sources[server] = &s
}
