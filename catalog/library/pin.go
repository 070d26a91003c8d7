package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/change"
	"sallyport.dev/sallyport/redact/lookalike"
	"sallyport.dev/sallyport/wire"
)

// Prompts and templates are pinned as tools are: a model reads what is said of
// them, and fills in what they ask for. Resources are not: they come and go by the
// thousand, nothing is filled in, and policies decide by the address, which is all
// that counts of them.

// A pinned thing is one with its pin.
type pinned struct {
	form     json.RawMessage // what would be pinned on approval
	pin      catalog.Pin
	endpoint string // of its server
}

// pinName is the name under which a thing's pin is kept, beside those of tools.
func pinName(t sallyport.Tool) string { return string(t.Shelf) + "/" + t.Origin.Name }

// Handle is the name by which operators speak of a prompt or template.
func Handle(t sallyport.Tool) string {
	if t.Shelf == sallyport.Prompts {
		return promptHandle + t.Name
	}
	return t.Name
}

const promptHandle = "prompt:"

// IsHandle reports whether a name is that of a prompt or template, and of no tool.
func IsHandle(name string) bool {
	return strings.HasPrefix(name, promptHandle) || strings.HasPrefix(name, scheme)
}

// settle compares a thing with its pin. What is to be pinned, since nobody saw it
// before, is added to firsts.
func (l *Library) settle(ctx context.Context, s *source, t *sallyport.Tool, raw json.RawMessage, instructions string, firsts map[string]catalog.Pin) {
	if l.o.Pins == nil || t.Shelf == sallyport.Resources {
		return
	}
	doc := append(append([]byte(`{"instructions":`), wire.Quote(instructions)...), `,"`+string(t.Shelf)+`":`...)
	form, err := sallyport.Canonical(append(append(doc, raw...), '}'))
	if err != nil {
		quarantine(t, "malformed: "+err.Error())
		return
	}
	t.Digest = digest(form)
	p, disguised := pinned{form: form, endpoint: t.Origin.Endpoint}, ""
	if t.Shelf == sallyport.Prompts {
		disguised = lookalike.Disguised(t.Origin.Name)
	}
	p.pin, err = l.o.Pins.GetPin(ctx, t.Origin.Server, pinName(*t))
	switch {
	case err != nil:
		quarantine(t, "its pin cannot be read, so nobody knows whether it changed")
	case p.pin.Definition != nil:
		t.Version = p.pin.Version
		if digest(p.pin.Definition) != t.Digest {
			quarantine(t, "its definition changed since it was pinned; look at the difference, then approve it")
		} else if disguised != "" && !p.pin.Of(t.Origin) {
			quarantine(t, "it was approved of another server of this name; its name "+disguised)
		}
	case disguised != "":
		quarantine(t, "its name "+disguised)
	default:
		p.pin = p.approved()
		t.Version = p.pin.Version
		firsts[pinName(*t)] = p.pin
	}
	s.pins[Handle(*t)] = p
}

// pinFirsts stores the pins of what was seen for the first time.
func (l *Library) pinFirsts(ctx context.Context, s *source, firsts map[string]catalog.Pin) {
	why := l.firsts.Pin(ctx, l.o.Pins, s.origin.Server, firsts)
	if why == "" {
		return
	}
	for _, list := range s.shelves {
		for i := range list {
			if t := &list[i]; firsts[pinName(*t)].Definition != nil {
				quarantine(t, why)
				p := s.pins[Handle(*t)]
				p.pin = catalog.Pin{}
				s.pins[Handle(*t)] = p
			}
		}
	}
}

func quarantine(t *sallyport.Tool, why string) {
	t.Status, t.StatusReason = sallyport.ToolQuarantined, why
}

// approved is the pin that an approval makes.
func (p pinned) approved() catalog.Pin {
	if p.pin.Definition == nil {
		return catalog.Pin{Definition: p.form, Version: change.First, Endpoint: p.endpoint}
	}
	return catalog.Pin{Definition: p.form, Version: change.Next(p.pin.Version, p.kind()), Endpoint: p.endpoint}
}

// kind is what a change asks of callers: a compatible one reads like the old one but
// for words. Any other is breaking.
func (p pinned) kind() change.Kind {
	switch {
	case digest(p.pin.Definition) == digest(p.form):
		return change.None
	case asks(p.pin.Definition) == asks(p.form):
		return change.Wording
	}
	return change.Breaking
}

// asks is what a definition asks of callers: its address, or its arguments.
func asks(form json.RawMessage) string {
	out := wire.Path(form, string(sallyport.Templates), "uriTemplate")
	for a := range wire.Elements(wire.Path(form, string(sallyport.Prompts), "arguments")) {
		out = append(append(slices.Clone(out), wire.Member(a, "name")...), wire.Member(a, "required")...)
	}
	return string(out)
}

// find finds a prompt or template by its handle.
func (l *Library) find(handle string) (t sallyport.Tool, p pinned, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		if p, ok := s.pins[handle]; ok {
			for _, t := range slices.Concat(s.shelves[sallyport.Prompts], s.shelves[sallyport.Templates]) {
				if Handle(t) == handle {
					return t, p, nil
				}
			}
		}
	}
	return t, p, &sallyport.Error{
		Code: sallyport.NotFound, Step: sallyport.Resolve,
		Message: fmt.Sprintf("no prompt or template is called %.200q", handle), Hint: "`sallyport tools list` shows those that wait, as prompt:NAME or sallyport:SERVER/TEMPLATE",
	}
}

// Waiting are the prompts and templates that a human has to look at, by handle.
func (l *Library) Waiting() (out []sallyport.Tool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		for _, t := range slices.Concat(s.shelves[sallyport.Prompts], s.shelves[sallyport.Templates]) {
			if t.Status == sallyport.ToolQuarantined {
				t.Name = Handle(t)
				out = append(out, t)
			}
		}
	}
	slices.SortFunc(out, func(a, b sallyport.Tool) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Show returns a prompt or template by its handle.
func (l *Library) Show(handle string) (sallyport.Tool, error) {
	t, _, err := l.find(handle)
	return t, err
}

// Diff tells how a prompt or template differs from its pin.
func (l *Library) Diff(handle string) (catalog.Difference, error) {
	t, p, err := l.find(handle)
	if err != nil {
		return catalog.Difference{}, err
	}
	return catalog.Difference{
		Lines: change.Lines(p.pin.Definition, p.form), Digest: t.Digest, Pinned: p.pin.Version, Next: p.approved().Version, Kind: p.kind(),
	}, nil
}

// Approve pins a prompt or template as it is now, if want is its digest or "", and
// lifts its quarantine.
func (l *Library) Approve(ctx context.Context, handle, want string) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	t, p, err := l.find(handle)
	switch {
	case err != nil:
		return err
	case want != "" && want != t.Digest:
		return catalog.Moved(handle)
	}
	pin := p.approved()
	if err := l.o.Pins.PutPins(ctx, t.Origin.Server, map[string]catalog.Pin{pinName(t): pin}); err != nil {
		return catalog.Unstored(err)
	}
	l.release(map[string]catalog.Pin{handle: pin})
	return nil
}

// Recheck looks whether what is quarantined here was approved elsewhere.
func (l *Library) Recheck(ctx context.Context) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	if l.o.Pins == nil {
		return nil
	}
	released, errs := map[string]catalog.Pin{}, []error(nil)
	for _, t := range l.Waiting() {
		pin, err := l.o.Pins.GetPin(ctx, t.Origin.Server, pinName(t))
		if errs = append(errs, err); err == nil && pin.Definition != nil && digest(pin.Definition) == t.Digest && pin.Of(t.Origin) {
			released[t.Name] = pin
		}
	}
	if len(released) > 0 {
		l.release(released)
	}
	return errors.Join(errs...)
}

// release lifts the quarantine of what was pinned as it is.
// Preconditions: l.changing is held.
func (l *Library) release(pins map[string]catalog.Pin) {
	l.mu.Lock()
	for name, s := range l.sources {
		fresh := *s
		fresh.shelves, fresh.pins = map[sallyport.Shelf][]sallyport.Tool{}, map[string]pinned{}
		for handle, p := range s.pins {
			if pin, ok := pins[handle]; ok {
				p.pin = pin
			}
			fresh.pins[handle] = p
		}
		for kind, list := range s.shelves {
			list = slices.Clone(list)
			for i, t := range list {
				if pin, ok := pins[Handle(t)]; ok && kind != sallyport.Resources {
					list[i].Status, list[i].StatusReason, list[i].Version = sallyport.ToolActive, "", pin.Version
				}
			}
			fresh.shelves[kind] = list
		}
		l.sources[name] = &fresh
	}
	l.publish()
	l.mu.Unlock()
	l.o.Changed()
}
