// Package library holds what can be read: the resources, templates and prompts
// of upstream servers. It gives each one address or name, the same at every
// gateway, and maps the addresses in results.
//
// Like the catalogue it hands out immutable snapshots: reading takes no lock.
package library

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
)

// A Profile is what the callers of one endpoint may see, before policies.
type Profile struct {
	Names []string // exposed names of prompts, or beginnings of names with a * at the end
	Bare  string   // the one server whose names and addresses stay as they are, "" for none
}

// Options say what a library is made of. Each field may be its zero value.
type Options struct {
	Profiles map[string]Profile // the default one, "", holds everything

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
	Timeout                      time.Duration // of a reading; 0 is the gateway's

	Holds                         bool              // resources at all, listed or not
	Resources, Templates, Prompts []json.RawMessage // as the server wrote them
}

// A Library is safe for concurrent use.
type Library struct {
	o   Options
	now atomic.Pointer[map[string]*view]

	mu      sync.Mutex // guards what follows, and the making of snapshots
	sources map[string]*source
}

// source is what one server holds.
type source struct {
	origin   sallyport.Origin
	timeout  time.Duration
	holds    bool
	shelves  map[sallyport.Shelf][]sallyport.Tool
	normal   map[string]bool // normal forms of the listed addresses
	warnings []string
}

// view is what one profile sees.
type view struct {
	bare    string
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
	l := &Library{o: o, sources: map[string]*source{}}
	l.publish()
	return l
}

// SetListing replaces what one server holds. What cannot be used is left out,
// one by one, and Warnings says why.
func (l *Library) SetListing(in Listing) {
	s := l.take(in)
	l.mu.Lock()
	l.sources[in.Server] = s
	l.publish()
	l.mu.Unlock()
	l.o.Changed()
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
	next := map[string]*view{"": l.view(nil)}
	for name, p := range l.o.Profiles {
		next[name] = l.view(&p)
	}
	l.now.Store(&next)
}

func (l *Library) view(p *Profile) *view {
	v := &view{shelves: map[sallyport.Shelf]*shelf{}, sources: map[string]*source{}}
	if p != nil {
		v.bare = p.Bare
	}
	for _, kind := range sallyport.Shelves {
		v.shelves[kind] = &shelf{by: map[string]int{}}
	}
	for _, name := range slices.Sorted(maps.Keys(l.sources)) {
		s := l.sources[name]
		if p == nil || p.whole(name) {
			v.sources[name] = s
		}
		for kind, list := range s.shelves {
			for _, t := range list {
				if p == nil || p.shows(t) {
					v.shelves[kind].add(t, v.bare == name)
				}
			}
		}
	}
	for _, shelf := range v.shelves {
		shelf.sort()
	}
	return v
}

// whole reports whether everything of a server is in the profile.
func (p *Profile) whole(server string) bool {
	return slices.ContainsFunc(p.Names, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return open && strings.HasPrefix(server+"__", prefix)
	})
}

func (p *Profile) shows(t sallyport.Tool) bool {
	if t.Shelf != sallyport.Prompts {
		return p.whole(t.Origin.Server)
	}
	return slices.ContainsFunc(p.Names, func(pattern string) bool { return sallyport.Matches(pattern, t.Name) })
}

func (s *shelf) add(t sallyport.Tool, bare bool) {
	if bare {
		t = unmapped(t)
	}
	s.list = append(s.list, t)
}

// sort orders the list by what callers see. The first of equal names stays.
func (s *shelf) sort() {
	slices.SortStableFunc(s.list, func(a, b sallyport.Tool) int { return strings.Compare(a.Shown(), b.Shown()) })
	s.list = slices.CompactFunc(s.list, func(a, b sallyport.Tool) bool { return a.Shown() == b.Shown() })
	for i, t := range s.list {
		s.by[t.Name], s.by[t.Shown()] = i, i
	}
}

func (l *Library) viewOf(profile string) *view { return (*l.now.Load())[profile] }

// Shelf returns one list of a profile. whole is false while a server of the
// profile has not told what it has; for the tools ("") it is all that is said.
func (l *Library) Shelf(profile string, kind sallyport.Shelf) (list []sallyport.Tool, whole bool) {
	v := l.viewOf(profile)
	if v == nil {
		return nil, true
	}
	if s := v.shelves[kind]; s != nil {
		list = s.list
	}
	p, subset := l.o.Profiles[profile]
	for _, server := range l.o.Silent() {
		if !subset || p.touches(server) {
			return list, false
		}
	}
	return list, true
}

// touches reports whether anything of a server can be in the profile.
func (p *Profile) touches(server string) bool {
	return slices.ContainsFunc(p.Names, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return strings.HasPrefix(prefix, server+"__") || open && strings.HasPrefix(server+"__", prefix)
	})
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
	if v.sources[server] == nil && v.bare != "" && len(name) <= maxAddress {
		server, address, ok = v.bare, name, true
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
	if v.bare == server {
		t.Alias = address
	}
	return t, nil
}

// Address maps the addresses of resources in a result of a server's.
func (l *Library) Address(profile string, tool sallyport.Tool, content json.RawMessage) json.RawMessage {
	v := l.viewOf(profile)
	if v == nil || v.bare == tool.Origin.Server {
		return content
	}
	return rewrite(content, tool.Origin.Server)
}

// Exposed is an address of a server's as the callers of a profile know it.
func (l *Library) Exposed(profile, server, address string) string {
	if v := l.viewOf(profile); v != nil && v.bare == server {
		return address
	}
	return Expose(server, address)
}
