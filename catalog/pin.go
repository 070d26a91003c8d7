package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact/visible"
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
	if err := c.pins.PutPin(ctx, e.tool.Origin.Server, e.tool.Origin.Name, e.current); err != nil {
		return &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Resolve,
			Message: "the pin cannot be stored", Hint: "see the gateway's log", Err: err,
		}
	}
	fresh := *e
	fresh.pinned = e.current
	fresh.tool.Status, fresh.tool.StatusReason = sallyport.ToolActive, ""
	replaced := *s
	replaced.entries = slices.Clone(s.entries)
	replaced.entries[i] = &fresh
	c.sources[s.server] = &replaced
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

// Diff tells in readable lines how a tool differs from its pin. Each line is
// one place; hidden characters are written as escapes. "" means no difference.
func (c *Catalog) Diff(name string) (string, error) {
	c.mu.Lock()
	e, _, _ := c.find(name)
	c.mu.Unlock()
	if e == nil {
		return "", &sallyport.Error{
			Code: sallyport.NotFound, Step: sallyport.Resolve,
			Message: fmt.Sprintf("no upstream tool is called %.*q", MaxName, name),
			Hint:    "list the tools",
		}
	}
	if e.broken {
		return "", fault("tool %q is %s", name, e.tool.StatusReason)
	}
	var old any
	if e.pinned != nil {
		old = decode(e.pinned)
	}
	var d differ
	d.compare("", old, decode(e.current))
	return d.b.String(), nil
}

func decode(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw) // a damaged pin is shown as it is
	}
	return v
}

type differ struct{ b strings.Builder }

func (d *differ) compare(path string, old, new any) {
	if m, ok := old.(map[string]any); ok {
		if n, ok := new.(map[string]any); ok {
			d.objects(path, m, n)
			return
		}
	}
	if a, ok := old.([]any); ok {
		if b, ok := new.([]any); ok {
			for i := range max(len(a), len(b)) {
				d.compare(path+"/"+strconv.Itoa(i), at(a, i), at(b, i))
			}
			return
		}
	}
	if show(old) != show(new) {
		d.line(path, old, new)
	}
}

// absent is the value of what is not there; nil is JSON's null.
type absent struct{}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return absent{}
}

func (d *differ) objects(path string, old, new map[string]any) {
	names := maps.Clone(old)
	maps.Copy(names, new)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, inOld := old[name]
		b, inNew := new[name]
		if !inOld {
			a = absent{}
		}
		if !inNew {
			b = absent{}
		}
		d.compare(path+"/"+sallyport.PointerToken(name), a, b)
	}
}

func (d *differ) line(path string, old, new any) {
	where := visible.String(path)
	_, added := old.(absent)
	_, removed := new.(absent)
	switch {
	case added || old == nil && path == "":
		fmt.Fprintf(&d.b, "+ %s: %s\n", where, show(new))
	case removed:
		fmt.Fprintf(&d.b, "- %s: %s\n", where, show(old))
	default:
		fmt.Fprintf(&d.b, "~ %s: %s -> %s\n", where, show(old), show(new))
	}
}

// show writes a value as JSON in which everything hidden is an escape.
func show(v any) string {
	if _, ok := v.(absent); ok {
		return "(absent)"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "(unreadable)"
	}
	return visible.String(string(b))
}
