// Package library holds what can be read: the resources, templates and prompts
// of upstream servers. It gives each one address or name, the same at every
// gateway, and maps the addresses in results.
//
// Like the catalogue it hands out immutable snapshots: reading takes no lock.
package library

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/profile"
)

// Options say what a library is made of. Each field may be its zero value.
type Options struct {
	Profiles map[string]profile.Profile // the default one, "", holds everything

	// Pins keep what prompts and templates were when they were approved or first
	// seen; nil pins nothing.
	Pins catalog.Pins

	// Clean cleans what a server says of what it has, as results are cleaned.
	Clean func(json.RawMessage) json.RawMessage

	// Silent names the servers that have not told yet what they have.
	Silent func() []string

	// Changed is told after each change of what there is; it must not block.
	Changed func()
}

// A Listing is what one server says it holds.
type Listing struct {
	Server, Endpoint, Credential string
	Instructions                 string
	Timeout                      time.Duration // of a reading; 0 is the gateway's

	Holds                         bool              // resources at all, listed or not
	Resources, Templates, Prompts []json.RawMessage // as the server wrote them
}

// A Library is safe for concurrent use.
type Library struct {
	o   Options
	now atomic.Pointer[map[string]*view]

	// changing serialises what reads pins and then publishes what follows from
	// them. It is taken before mu.
	changing sync.Mutex
	firsts   catalog.Firsts // guarded by changing

	mu       sync.Mutex // guards what follows, and the making of snapshots
	profiles map[string]profile.Profile
	sources  map[string]*source
}

// source is what one server holds.
type source struct {
	origin   sallyport.Origin
	timeout  time.Duration
	holds    bool
	shelves  map[sallyport.Shelf][]sallyport.Tool
	normal   map[string]bool   // normal forms of the listed addresses
	pins     map[string]pinned // of prompts and templates, by handle
	warnings []string
}

// view is what one profile sees.
type view struct {
	profile profile.Profile
	shelves map[sallyport.Shelf]*shelf
	sources map[string]*source // of which every address can be read
}

type shelf struct {
	list []sallyport.Tool
	by   map[string]int // by exposed name, and by alias
}

// New makes an empty library.
func New(o Options) *Library {
	if o.Clean == nil {
		o.Clean = func(v json.RawMessage) json.RawMessage { return v }
	}
	if o.Silent == nil {
		o.Silent = func() []string { return nil }
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	l := &Library{o: o, profiles: o.Profiles, sources: map[string]*source{}}
	l.publish()
	return l
}

// SetListing replaces what one server holds. What cannot be used is left out,
// one by one, and Warnings says why.
func (l *Library) SetListing(ctx context.Context, in Listing) {
	l.changing.Lock()
	defer l.changing.Unlock()
	s := l.take(ctx, in)
	l.mu.Lock()
	l.sources[in.Server] = s
	l.publish()
	l.mu.Unlock()
	l.o.Changed()
}

// SetProfiles replaces the profiles.
func (l *Library) SetProfiles(profiles map[string]profile.Profile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.profiles = profiles
	l.publish()
}

// RemoveListing takes away what a server holds.
func (l *Library) RemoveListing(server string) {
	l.mu.Lock()
	delete(l.sources, server)
	l.publish()
	l.mu.Unlock()
	l.o.Changed()
}

// Warnings tells what of a server's is left out, and why.
func (l *Library) Warnings(server string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sources[server]; s != nil {
		return s.warnings
	}
	return nil
}

// publish makes the next snapshot. Preconditions: l.mu is held, or nobody has l yet.
func (l *Library) publish() {
	next := map[string]*view{"": l.view(profile.All())}
	for name, p := range l.profiles {
		next[name] = l.view(p)
	}
	l.now.Store(&next)
}

func (l *Library) view(p profile.Profile) *view {
	v := &view{profile: p, shelves: map[sallyport.Shelf]*shelf{}, sources: map[string]*source{}}
	for _, kind := range sallyport.Shelves {
		v.shelves[kind] = &shelf{by: map[string]int{}}
	}
	for _, name := range slices.Sorted(maps.Keys(l.sources)) {
		s := l.sources[name]
		if p.Whole(name) {
			v.sources[name] = s
		}
		for kind, list := range s.shelves {
			for _, t := range list {
				if kind == sallyport.Prompts && p.Shows(t.Name) || kind != sallyport.Prompts && p.Whole(name) {
					v.shelves[kind].list = append(v.shelves[kind].list, shape(p, t))
				}
			}
		}
	}
	for _, shelf := range v.shelves {
		shelf.sort()
	}
	return v
}

// shape is a thing as a profile shows it. Names and words of prompts are the
// operator's to change; addresses are what policies decide by, and what servers
// link to, so they stay.
func shape(p profile.Profile, t sallyport.Tool) sallyport.Tool {
	if t.Shelf == sallyport.Prompts {
		t = p.Shape(t)
	}
	if p.Bare == t.Origin.Server && p.Bare != "" {
		t = unmapped(t)
	}
	return t
}

// sort orders the list by what callers see. The first of equal names stays.
func (s *shelf) sort() {
	slices.SortStableFunc(s.list, func(a, b sallyport.Tool) int { return strings.Compare(a.Shown(), b.Shown()) })
	s.list = slices.CompactFunc(s.list, func(a, b sallyport.Tool) bool { return a.Shown() == b.Shown() })
	for i, t := range s.list {
		s.by[t.Name], s.by[t.Shown()] = i, i
	}
}

func (l *Library) viewOf(name string) *view { return (*l.now.Load())[name] }

// Shelf returns one list of a profile. whole is false while a server of the
// profile has not told what it has; for the tools ("") it is all that is said.
func (l *Library) Shelf(name string, kind sallyport.Shelf) (list []sallyport.Tool, whole bool) {
	v := l.viewOf(name)
	if v == nil {
		return nil, true
	}
	if s := v.shelves[kind]; s != nil {
		list = s.list
	}
	for _, server := range l.o.Silent() {
		if v.profile.Touches(server) {
			return list, false
		}
	}
	return list, true
}

var errNotFound = &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Resolve, Message: "there is no such thing", Hint: "list what there is"}

// Find finds a thing by its exposed name or address, or as a profile with bare
// names shows it. Of a resource, its server may know more than it lists: what is
// not listed is found if its address is in normal form, and is not another
// spelling of one that is.
func (l *Library) Find(profile string, kind sallyport.Shelf, name string) (sallyport.Tool, error) {
	v := l.viewOf(profile)
	if v == nil || v.shelves[kind] == nil {
		return sallyport.Tool{}, errNotFound
	}
	if i, ok := v.shelves[kind].by[name]; ok {
		return v.shelves[kind].list[i], nil
	}
	if kind == sallyport.Templates { // a completion may also be about a resource
		if i, ok := v.shelves[sallyport.Resources].by[name]; ok {
			return v.shelves[sallyport.Resources].list[i], nil
		}
	}
	if kind != sallyport.Resources {
		return sallyport.Tool{}, errNotFound
	}
	return v.unlisted(name)
}

func (v *view) unlisted(name string) (sallyport.Tool, error) {
	server, address, ok := Reveal(name)
	if v.sources[server] == nil && v.profile.Bare != "" && len(name) <= maxAddress {
		server, address, ok = v.profile.Bare, name, true
	}
	s := v.sources[server]
	if !ok || s == nil || !s.holds || !valid(address) || !settled(address) || s.normal[address] {
		return sallyport.Tool{}, errNotFound
	}
	t := sallyport.Tool{
		Shelf: sallyport.Resources, Name: Expose(server, address), Version: "1", Status: sallyport.ToolActive,
		Origin: s.origin, Manifest: sallyport.Manifest{Timeout: s.timeout},
	}
	t.Origin.Name = address
	if v.profile.Bare == server {
		t.Alias = address
	}
	return t, nil
}

// Address maps the addresses of resources in a result of a server's.
func (l *Library) Address(profile string, tool sallyport.Tool, content json.RawMessage) json.RawMessage {
	v := l.viewOf(profile)
	if v == nil || v.profile.Bare == tool.Origin.Server {
		return content
	}
	return rewrite(content, tool.Origin.Server)
}
