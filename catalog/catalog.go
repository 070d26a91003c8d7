// Package catalog holds the tools of the gateway: built in, written as
// manifests, or listed by upstream servers. It gives each one name, pins what
// it was when it was first seen, quarantines what changed or is malformed, and
// checks arguments against schemas.
//
// What it hands out is an immutable snapshot: reading takes no lock and costs
// the same with ten tools and ten thousand.
package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/profile"
	"sallyport.dev/sallyport/catalog/suspect"
)

// Pins remember what a tool was when it was approved or first seen.
// Implementations must be durable: a pin that is lost lets a changed tool in.
type Pins interface {
	// GetPin returns what is pinned, or a zero Pin.
	GetPin(ctx context.Context, server, tool string) (Pin, error)
	// PutPins stores pins of a server by tool, over earlier ones. It is quick with
	// thousands: other servers wait for it. With an error, some may be stored.
	PutPins(ctx context.Context, server string, pins map[string]Pin) error
}

// A Pin is a definition that was seen first or approved.
type Pin struct {
	Definition json.RawMessage // nil if there is none
	Version    string          // semantic, 1.0.0 at first sight
	Accepted   []string        // remarks that whoever approved it has seen
	Endpoint   string          // where its server was then, "" if nobody noted it
}

// Options say what a catalogue is made of.
type Options struct {
	// Builtins are the gateway's own tools. Name, InputSchema and Origin.Backend
	// are needed; what else is empty is filled in.
	Builtins []sallyport.Tool
	// Manifests are the operator's tools and refinements.
	Manifests []Manifest
	// Profiles shape what each endpoint shows. The default profile "" holds every
	// tool as it is.
	Profiles map[string]profile.Profile
	// Pins are needed where there are upstreams.
	Pins Pins
	// Speaks tells whether a text gives orders to a model; nil: nobody can tell.
	Speaks func(text string) bool
	// Clean takes secrets out of what a server says of its tools, before anybody
	// is told; nil leaves them in. What is pinned is what the server said.
	Clean func(json.RawMessage) json.RawMessage
	// Now is the clock by which deprecated tools are retired; nil is the real one.
	Now func() time.Time
	// Changed, if set, is told after each change of any tool; it must not block.
	Changed func()
}

// A Warning tells of a tool that is not listed, or not quite as its origin
// meant it.
type Warning struct {
	Server string // "" for builtins and manifests
	Tool   string // its name at its origin, "" if it has none
	Reason string
}

// A Catalog holds the tools. It is safe for concurrent use.
type Catalog struct {
	now atomic.Pointer[snapshot]

	pins    Pins
	clock   func() time.Time
	judge   suspect.Judge
	changed func()
	clean   func(json.RawMessage) json.RawMessage

	// changing serialises what reads pins and then publishes what follows from
	// them. It is taken before mu.
	changing sync.Mutex
	firsts   Firsts // guarded by changing

	mu        sync.Mutex // guards what follows, and the making of snapshots
	profiles  map[string]profile.Profile
	builtins  []*entry
	manifests []Manifest
	own       []*entry // tools that manifests define
	sources   map[string]*source
	told      map[string]bool // servers that have told their tools since the start
	sequence  int
}

// entry is one tool with what it takes to check and approve it.
type entry struct {
	tool   sallyport.Tool
	schema *checker
	output *checker        // nil if there is no usable output schema
	raw    json.RawMessage // as the server wrote it, nil for the gateway's own

	instructions string // of its server
	pinned       Pin
	current      json.RawMessage // what would be pinned on approval
	broken       bool            // malformed: cannot be approved
	warnings     []string
	found        []suspect.Finding // what to be wary of
}

type snapshot struct {
	generation uint64
	entries    map[string]*entry // all tools, by exposed name, as no profile shapes them
	views      map[string]*view
	warnings   []Warning
	until      time.Time // when the next tool retires, zero if none will

	look    sync.Once           // fills in what follows, for who asks
	all     map[string][]string // what to be wary of, by exposed name
	remarks map[string][]string // … and nobody has accepted
}

// view is what one profile sees.
type view struct {
	entries map[string]*entry
	list    []sallyport.Tool
}

// New makes a catalogue. Errors name the builtin or manifest at fault.
func New(o Options) (*Catalog, error) {
	c := &Catalog{
		pins: o.Pins, changed: o.Changed, clock: o.Now, judge: suspect.Judge{Speaks: o.Speaks}, clean: o.Clean,
		sources: map[string]*source{}, told: map[string]bool{},
	}
	if c.clock == nil {
		c.clock = time.Now
	}
	for _, t := range o.Builtins {
		e, err := ownEntry(t)
		if err != nil {
			return nil, fault("builtin tool %q: %v", t.Name, err)
		}
		c.builtins = append(c.builtins, e)
	}
	c.now.Store(&snapshot{})
	if err := c.Set(o.Profiles, o.Manifests); err != nil {
		return nil, err
	}
	return c, nil
}

// Set replaces the operator's profiles and manifests, all or none of them.
func (c *Catalog) Set(profiles map[string]profile.Profile, manifests []Manifest) error {
	taken := map[string]string{}
	for _, e := range c.builtins {
		taken[e.tool.Name] = "the gateway itself"
	}
	var own []*entry
	for _, m := range manifests {
		name := m.Name
		if m.Server != "" && name == "" {
			name = ExposedName(m.Server, m.Tool)
		}
		if first, ok := taken[name]; ok {
			return fault("%s: the tool name %q is already used by %s", m.File, name, first)
		}
		taken[name] = m.File
		if m.Server != "" {
			continue
		}
		e, err := ownEntry(m.define())
		if err != nil {
			return fault("%s: %v", m.File, err)
		}
		own = append(own, e)
	}
	if err := profile.Collision(profiles, taken); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.profiles, c.manifests, c.own = maps.Clone(profiles), slices.Clone(manifests), own
	c.publish()
	return nil
}

// Resolve finds a tool by exposed name. Every failure is code NotFound.
func (c *Catalog) Resolve(profile, name string) (sallyport.Tool, error) {
	if v := c.current().views[profile]; v != nil {
		if e := v.entries[name]; e != nil {
			return e.tool, nil
		}
	}
	return sallyport.Tool{}, &sallyport.Error{
		Code: sallyport.NotFound, Step: sallyport.Resolve,
		Message: fmt.Sprintf("no tool is called %.*q", MaxName, name),
		Hint:    "list the tools that you may use",
	}
}

// List returns every tool of a profile, quarantined ones too, sorted by name.
// The caller must not modify it.
func (c *Catalog) List(profile string) ([]sallyport.Tool, error) {
	v := c.current().views[profile]
	if v == nil {
		return nil, &sallyport.Error{
			Code: sallyport.NotFound, Step: sallyport.Resolve,
			Message: fmt.Sprintf("no profile is called %.*q", MaxName, profile),
			Hint:    "use a profile that the configuration names",
		}
	}
	return v.list, nil
}

// Generation changes whenever any tool does.
func (c *Catalog) Generation() uint64 { return c.current().generation }

// current is the snapshot of this moment: one that a tool has outlived is made
// anew.
func (c *Catalog) current() *snapshot {
	s := c.now.Load()
	if s.until.IsZero() || c.clock().Before(s.until) {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.now.Load(); !s.until.IsZero() && !c.clock().Before(s.until) {
		c.publish()
	}
	return c.now.Load()
}

// Warnings lists what is wrong with the tools, in a deterministic order.
func (c *Catalog) Warnings() []Warning { return c.now.Load().warnings }

// publish makes the next snapshot. Preconditions: c.mu is held.
func (c *Catalog) publish() {
	b := builder{entries: map[string]*entry{}, now: c.clock()}
	for _, e := range c.builtins {
		b.add(e)
	}
	for _, e := range c.own {
		b.add(e)
	}
	refined := map[[2]string]Manifest{}
	for _, m := range c.manifests {
		if m.Server != "" {
			refined[[2]string{m.Server, m.Tool}] = m
		}
	}
	for _, s := range slices.SortedFunc(maps.Values(c.sources), func(a, b *source) int { return a.sequence - b.sequence }) {
		for _, w := range s.warnings {
			b.warnings = append(b.warnings, Warning{Server: s.server, Tool: w.Tool, Reason: w.Reason})
		}
		for _, e := range s.entries {
			origin := [2]string{s.server, e.tool.Origin.Name}
			if m, ok := refined[origin]; ok {
				e = m.refine(e)
				delete(refined, origin)
			}
			b.add(e)
		}
	}
	for origin, m := range refined {
		if s := c.sources[origin[0]]; s != nil {
			b.warnings = append(b.warnings, Warning{origin[0], origin[1], m.File + " refines a tool that the server does not list"})
		}
	}
	b.warnings = append(b.warnings, alikeServers(slices.Sorted(maps.Keys(c.sources)))...)
	next := &snapshot{generation: c.now.Load().generation + 1, entries: b.entries, views: b.views(c.profiles, c.told), until: b.until}
	next.warnings = b.warnings
	slices.SortStableFunc(next.warnings, func(x, y Warning) int {
		return strings.Compare(x.Server+"\x00"+x.Tool, y.Server+"\x00"+y.Tool)
	})
	c.now.Store(next)
	if c.changed != nil {
		c.changed()
	}
}

// builder collects the tools of one snapshot; the first of equal names stays.
type builder struct {
	entries  map[string]*entry
	warnings []Warning
	now      time.Time
	until    time.Time // as in snapshot
}

func (b *builder) add(e *entry) {
	origin := e.tool.Origin
	if first, taken := b.entries[e.tool.Name]; taken {
		b.warnings = append(b.warnings, Warning{origin.Server, origin.Name, fmt.Sprintf(
			"refused: its exposed name %q is already that of %s", e.tool.Name, describe(first.tool.Origin))})
		return
	}
	for _, w := range e.warnings {
		b.warnings = append(b.warnings, Warning{origin.Server, origin.Name, w})
	}
	b.entries[e.tool.Name] = b.aged(e)
}

func describe(o sallyport.Origin) string {
	if o.Server == "" {
		return fmt.Sprintf("the gateway's own tool %q", o.Name)
	}
	return fmt.Sprintf("tool %q of server %q", o.Name, o.Server)
}

func (b *builder) views(profiles map[string]profile.Profile, told map[string]bool) map[string]*view {
	names := slices.Sorted(maps.Keys(b.entries))
	views := map[string]*view{"": b.view(profile.All(), names)}
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		views[name] = b.view(p, names)
		for tool, why := range p.Unknown(told, func(tool string) bool { return b.entries[tool] != nil }) {
			b.warnings = append(b.warnings, Warning{Tool: tool, Reason: fmt.Sprintf("profile %s: %s", name, why)})
		}
	}
	return views
}

func (b *builder) view(p profile.Profile, names []string) *view {
	v := &view{entries: map[string]*entry{}}
	for _, name := range names {
		if p.Shows(name) {
			v.add(b.entries[name], p)
		}
	}
	slices.SortStableFunc(v.list, func(a, b sallyport.Tool) int { return strings.Compare(a.Shown(), b.Shown()) })
	return v
}

// add takes a tool into a view, as the profile shows it. By its exposed name it is
// found too, and is the same then.
func (v *view) add(e *entry, p profile.Profile) {
	origin := e.tool.Origin
	bare := p.Bare != "" && origin.Server == p.Bare && e.tool.Name == ExposedName(p.Bare, origin.Name) && v.entries[origin.Name] == nil
	if bare || p.Changes(e.tool.Name) {
		fresh := *e
		if fresh.tool = p.Shape(e.tool); bare {
			fresh.tool = profile.Renamed(fresh.tool, origin.Name)
		}
		e = &fresh
	}
	v.entries[e.tool.Name], v.entries[e.tool.Shown()] = e, e
	v.list = append(v.list, e.tool)
}

// fault is an operator's mistake.
func fault(format string, args ...any) *sallyport.Error {
	return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Resolve, Message: fmt.Sprintf(format, args...)}
}
