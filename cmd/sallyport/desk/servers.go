package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/backend/openapi"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/given"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/library"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/relational"
)

// Servers keeps the upstreams: those of the configuration, which wins, and
// those added at run time.
type Servers struct {
	Tenant     string
	Store      *relational.Store
	Vault      *secret.Vault
	Catalog    *catalog.Catalog
	Library    *library.Library
	Backend    *upstream.Backend
	APIs       *openapi.Backend
	Authz      *Authorisations
	Configured map[string]config.Server
	Install    func(ctx context.Context, name string, argv []string, c sallyport.Confinement) (installed string, err error) // for servers in sandboxes

	changing sync.Mutex        // held while servers come or go
	added    map[string]string // configuration of those added at run time, by name; guarded by changing
	failing  map[string]string // why one does not start, by name; guarded by changing

	mu    sync.Mutex // guards what follows
	known map[string]config.Server
}

// Start starts every server. One that cannot be used is shown by Status and
// keeps nobody else out.
func (d *Servers) Start(ctx context.Context, log *slog.Logger) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	d.known, d.added, d.failing = maps.Clone(d.Configured), map[string]string{}, map[string]string{}
	if d.known == nil {
		d.known = map[string]config.Server{}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Configured)) {
		if err := d.run(ctx, name, d.Configured[name], ""); err != nil {
			log.Error("a server does not start", "server", name, "err", err)
		}
	}
	return d.catchUp(ctx, log)
}

// followEvery is how often a gateway looks which servers were added or removed
// at another one with the same database.
const followEvery = 2 * time.Second

// Follow has this gateway know the servers of the others, and which tools were
// released there, until ctx ends. It
// returns at once where a gateway has the database alone.
func (d *Servers) Follow(ctx context.Context, log *slog.Logger) {
	if !d.Store.Dialect().Shared {
		return
	}
	t := time.NewTicker(followEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		d.changing.Lock()
		err := errors.Join(d.catchUp(ctx, log), d.Catalog.Recheck(ctx), d.Library.Recheck(ctx))
		d.changing.Unlock()
		if err != nil && ctx.Err() == nil {
			log.Error("looking for servers that were added, and tools that were released, elsewhere", "err", err)
		}
	}
}

// catchUp starts and ends servers as the database has them. One that cannot be
// used is tried again each time, and told once.
// Preconditions: changing is held.
func (d *Servers) catchUp(ctx context.Context, log *slog.Logger) error {
	all, err := d.Store.Servers(ctx, d.Tenant)
	if err != nil {
		return err
	}
	stored := map[string]string{}
	for _, s := range all {
		stored[s.Name] = string(s.Config)
	}
	for name, raw := range d.added {
		if stored[name] != raw {
			d.forget(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if _, runs := d.added[name]; runs {
			continue
		}
		why := ""
		if err := d.join(ctx, name, stored[name]); err != nil {
			why = err.Error()
		}
		if why != d.failing[name] && why != "" {
			log.Error("a stored server is not started", "server", name, "err", why)
		}
		d.failing[name] = why
	}
	return nil
}

// join starts a server that the database has. Preconditions: changing is held.
func (d *Servers) join(ctx context.Context, name, raw string) error {
	if _, ok := d.Configured[name]; ok {
		return errors.New("the configuration has a server of this name, which wins")
	}
	c, text, err := parseServer(name, json.RawMessage(raw))
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.known[name] = c
	d.mu.Unlock()
	if err := d.run(ctx, name, c, text); err != nil {
		d.forget(name)
		return err
	}
	d.added[name] = raw
	return nil
}

// run resolves secrets and hands the server to the backend. text is the document
// of an API, where it is not to be looked for.
func (d *Servers) run(ctx context.Context, name string, s config.Server, text string) error {
	if s.OpenAPI != "" {
		return d.runAPI(ctx, name, s, text)
	}
	c := upstream.Config{
		Name: name, URL: s.URL, Isolation: s.Isolation, MaxMessage: int(s.MaxLine), Argv: argvOf(s),
		Calls: s.Calls, Queue: s.Queue, Wait: s.Wait, Idle: s.Idle, Processes: upstream.Processes(s.Processes),
	}
	v, used, err := d.give(ctx, s)
	if err != nil {
		return err
	}
	if s.Isolation == config.IsolationGVisor {
		c.Confinement = s.Confinement()
	}
	if c.Env, c.Header, c.Confinement.Inject = v.Env, v.Header, v.Inject; len(used) > 0 {
		c.Given = func(ctx context.Context) (given.Values, error) {
			v, _, err := d.give(ctx, s)
			return v, err
		}
	}
	resolve := func(v string) (string, error) {
		used = append(used, config.References(v)...)
		return d.Resolve(ctx, v)
	}
	if err := d.authorise(ctx, name, s, &c, resolve); err != nil {
		return err
	}
	if by := credential(s.OAuth); by != "" {
		used = append(used, by)
	}
	slices.Sort(used)
	c.Credential = strings.Join(slices.Compact(used), ",")
	return d.Backend.Add(c)
}

// Listed takes each new list of tools into the catalogue.
func (d *Servers) Listed(log *slog.Logger) func(upstream.Listing) {
	return func(l upstream.Listing) {
		d.mu.Lock()
		timeout := d.known[l.Server].Timeout
		d.mu.Unlock()
		err := d.Catalog.SetListing(context.Background(), catalog.Listing{
			Server: l.Server, Endpoint: l.Endpoint, Credential: l.Credential, Instructions: l.Instructions, Timeout: timeout, Tools: l.Tools,
		})
		d.Library.SetListing(context.Background(), library.Listing{
			Server: l.Server, Endpoint: l.Endpoint, Credential: l.Credential, Instructions: l.Instructions, Timeout: timeout,
			Holds: l.Holds, Resources: l.Resources, Templates: l.Templates, Prompts: l.Prompts,
		})
		if err != nil {
			log.Error("a server's list of tools cannot be used; the earlier one stays", "server", l.Server, "err", err)
		}
	}
}

// AddServer stores a server and starts it, and waits a little so that the
// answer can say how it is.
func (d *Servers) AddServer(ctx context.Context, name string, raw json.RawMessage, e sallyport.Entry) (adminapi.ServerStatus, error) {
	installed, err := d.add(ctx, name, raw, e)
	if err != nil {
		return adminapi.ServerStatus{}, err
	}
	st, err := d.settle(ctx, name)
	st.Package = installed
	return st, err
}

// settle waits a little, so that an answer can say how a server is.
func (d *Servers) settle(ctx context.Context, name string) (adminapi.ServerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s := d.status(name)
		if d.settled(s) {
			return s, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if upstream.State(s.State) == upstream.StateReady {
				s.Warnings = append(s.Warnings, "it has not told yet which tools it has")
			}
			return s, nil
		}
	}
}

func (d *Servers) add(ctx context.Context, name string, raw json.RawMessage, e sallyport.Entry) (installed string, err error) {
	c, _, err := parseServer(name, raw)
	if err != nil {
		return "", badServer(name, err)
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	stored, err := d.Store.Servers(ctx, d.Tenant)
	if err != nil {
		return "", err
	}
	_, taken := d.Configured[name]
	if taken || slices.ContainsFunc(stored, func(s store.Server) bool { return s.Name == name }) {
		return "", &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("there is a server %q", name), Hint: "`sallyport servers remove` it first, or use another name"}
	}
	if installed, err = d.install(ctx, name, c); err != nil {
		return "", err
	}
	if err := d.join(ctx, name, string(raw)); err != nil {
		return "", badServer(name, err)
	}
	if err := d.Store.PutServer(ctx, store.Server{Tenant: d.Tenant, Name: name, Config: raw}, e); err != nil {
		d.forget(name)
		return "", err
	}
	return installed, nil
}

// settled reports whether there is more to say of a server than that it starts.
// What it has told may be that it has no tools.
func (d *Servers) settled(s adminapi.ServerStatus) bool {
	switch upstream.State(s.State) {
	case upstream.StateReady:
		return s.Error != "" || !slices.Contains(d.Backend.Silent(), s.Name)
	case upstream.StateRefused, upstream.StateDown:
		return true
	default:
		return false
	}
}

func badServer(name string, err error) error {
	if _, ok := errors.AsType[*sallyport.Error](err); ok {
		return err
	}
	return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("server %q: %v", name, err)}
}

// forget ends a server. Preconditions: changing is held.
func (d *Servers) forget(name string) {
	d.Backend.Remove(name)
	d.Authz.Drop(name)
	d.APIs.Remove(name)
	d.Catalog.RemoveListing(name)
	d.Library.RemoveListing(name)
	delete(d.added, name)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, name)
}

// RemoveServer stops a server that was added at run time, and forgets it.
func (d *Servers) RemoveServer(ctx context.Context, name string, e sallyport.Entry) error {
	if _, ok := d.Configured[name]; ok {
		return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("server %q is in the configuration file", name), Hint: "take it out there"}
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	revoke := d.Authz.Leaving(ctx, name)
	if err := d.Store.DeleteServer(ctx, d.Tenant, name, e); err != nil {
		return err
	}
	d.forget(name)
	revoke()
	return nil
}

func (d *Servers) status(name string) adminapi.ServerStatus {
	all, _ := d.ServerStatus(context.Background())
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	return adminapi.ServerStatus{Name: name, State: string(upstream.StateStarting)}
}

// ServerStatus says how each server is. What the catalogue has to say about
// its tools is among the warnings.
func (d *Servers) ServerStatus(ctx context.Context) ([]adminapi.ServerStatus, error) {
	d.mu.Lock()
	known := maps.Clone(d.known)
	d.mu.Unlock()
	remarks := map[string][]string{}
	for _, w := range d.Catalog.Warnings() {
		remarks[w.Server] = append(remarks[w.Server], strings.TrimPrefix(w.Tool+": "+w.Reason, ": "))
	}
	var out []adminapi.ServerStatus
	for _, s := range d.Backend.Status() {
		c := known[s.Name]
		warnings := slices.Concat(s.Warnings, remarks[s.Name], d.Library.Warnings(s.Name))
		if s.Degraded != "" {
			warnings = append(warnings, "degraded: "+s.Degraded)
		}
		held := d.grants(ctx, s.Name)
		if lacks := wanting(held); lacks != "" {
			warnings = append(warnings, lacks)
		}
		out = append(out, adminapi.ServerStatus{
			Name: s.Name, State: string(s.State), Era: s.Era, Version: s.Version, Isolation: s.Isolation, Source: d.source(s.Name),
			Reaches: c.Egress, Sees: rootsOf(c), Command: commandOf(c), URL: c.URL, Tools: s.Tools, Restarts: s.Restarts, Error: trouble(s, c), Warnings: warnings,
			Stderr: strings.Join(s.Stderr, "\n"), Circuit: string(s.Circuit), Opened: s.Opened, OAuth: held,
		})
	}
	out = append(out, d.apiStatus(known, remarks)...)
	slices.SortFunc(out, func(a, b adminapi.ServerStatus) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func rootsOf(c config.Server) (out []string) {
	for _, r := range c.Roots {
		if r.ReadOnly {
			out = append(out, r.Path)
		} else {
			out = append(out, r.Path+" (writable)")
		}
	}
	return out
}

func commandOf(c config.Server) string {
	if c.Command == "" {
		return ""
	}
	return cli.CommandLine("", append([]string{c.Command}, c.Args...))
}

// source says where a server was written down.
func (d *Servers) source(name string) string {
	if _, ok := d.Configured[name]; ok {
		return "configuration"
	}
	return "database"
}
