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
	"sallyport.dev/sallyport/catalog/suspect"
	"sallyport.dev/sallyport/wire"
)

// Pins remember what a tool was when it was approved or first seen.
// Implementations must be durable: a pin that is lost lets a changed tool in.
type Pins interface {
	// GetPin returns what is pinned, or a zero Pin.
	GetPin(ctx context.Context, server, tool string) (Pin, error)
	// PutPin stores a pin, over an earlier one if there is one.
	PutPin(ctx context.Context, server, tool string, p Pin) error
}

// A Pin is a definition that was seen first or approved.
type Pin struct {
	Definition json.RawMessage // nil if there is none
	Version    string          // semantic, 1.0.0 at first sight
}

// Options say what a catalogue is made of.
type Options struct {
	// Builtins are the gateway's own tools. Name, InputSchema and Origin.Backend
	// are needed; what else is empty is filled in.
	Builtins []sallyport.Tool
	// Manifests are the operator's tools and refinements.
	Manifests []Manifest
	// Profiles name subsets: exposed names, or beginnings of names with a * at
	// the end. The default profile "" holds every tool.
	Profiles map[string][]string
	// Bare names, by profile, the one server whose tools are listed there by the
	// names that they have at home. Policies, tickets and the record know them by
	// their exposed names all the same.
	Bare map[string]string
	// Pins are needed where there are upstreams.
	Pins Pins
	// Speaks tells whether a text gives orders to a model; nil: nobody can tell.
	Speaks func(text string) bool
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

	pins     Pins
	profiles map[string][]string
	bare     map[string]string
	clock    func() time.Time
	judge    suspect.Judge
	changed  func()

	// changing serialises what reads pins and then publishes what follows from
	// them. It is taken before mu.
	changing sync.Mutex

	mu        sync.Mutex // guards what follows, and the making of snapshots
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
	views      map[string]*view
	warnings   []Warning
	until      time.Time // when the next tool retires, zero if none will

	look    sync.Once           // fills in what follows, for who asks
	remarks map[string][]string // what to be wary of, by exposed name
}

// view is what one profile sees.
type view struct {
	entries map[string]*entry
	list    []sallyport.Tool
}

// New makes a catalogue. Errors name the builtin or manifest at fault.
func New(o Options) (*Catalog, error) {
	c := &Catalog{
		pins: o.Pins, profiles: maps.Clone(o.Profiles), bare: maps.Clone(o.Bare), changed: o.Changed, clock: o.Now, judge: suspect.Judge{Speaks: o.Speaks},
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
	if err := c.SetManifests(o.Manifests); err != nil {
		return nil, err
	}
	return c, nil
}

// SetManifests replaces the operator's manifests, all or none of them.
func (c *Catalog) SetManifests(manifests []Manifest) error {
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
	c.mu.Lock()
	defer c.mu.Unlock()
	c.manifests, c.own = slices.Clone(manifests), own
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
	next := &snapshot{generation: c.now.Load().generation + 1, views: b.views(c.profiles, c.bare), warnings: b.warnings, until: b.until}
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

func (b *builder) views(profiles map[string][]string, bare map[string]string) map[string]*view {
	all := &view{entries: b.entries}
	for _, name := range slices.Sorted(maps.Keys(b.entries)) {
		all.list = append(all.list, b.entries[name].tool)
	}
	views := map[string]*view{"": all}
	for profile, patterns := range profiles {
		v := &view{entries: map[string]*entry{}}
		for _, t := range all.list {
			if matches(patterns, t.Name) {
				v.add(b.entries[t.Name], bare[profile])
			}
		}
		slices.SortStableFunc(v.list, func(a, b sallyport.Tool) int { return strings.Compare(a.Shown(), b.Shown()) })
		views[profile] = v
	}
	return views
}

// add takes a tool into a view, under its own name too if it is of the bare
// server and no other tool has that name.
func (v *view) add(e *entry, bare string) {
	origin := e.tool.Origin
	if bare != "" && origin.Server == bare && e.tool.Name == ExposedName(bare, origin.Name) && v.entries[origin.Name] == nil {
		fresh := *e
		if raw, err := wire.SetMember(e.tool.Definition, "name", wire.Quote(origin.Name)); err == nil {
			fresh.tool.Alias, fresh.tool.Definition = origin.Name, raw
		}
		e = &fresh
		v.entries[origin.Name] = e
	}
	v.entries[e.tool.Name] = e
	v.list = append(v.list, e.tool)
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); p == name || ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// fault is an operator's mistake.
func fault(format string, args ...any) *sallyport.Error {
	return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Resolve, Message: fmt.Sprintf(format, args...)}
}
