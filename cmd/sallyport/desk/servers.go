package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/catalog"
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
	Backend    *upstream.Backend
	Configured map[string]config.Server

	mu    sync.Mutex // guards what follows
	known map[string]config.Server
}

// Start starts every server. One that cannot be used is shown by Status and
// keeps nobody else out.
func (d *Servers) Start(ctx context.Context, log *slog.Logger) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = maps.Clone(d.Configured)
	added, err := d.Store.Servers(ctx, d.Tenant)
	if err != nil {
		return err
	}
	for _, s := range added {
		if _, ok := d.Configured[s.Name]; ok {
			log.Warn("the configuration has a server of this name; the one added at run time is not started", "server", s.Name)
			continue
		}
		c, err := config.ParseServer(s.Name, s.Config)
		if err != nil {
			log.Error("a stored server is not usable", "server", s.Name, "err", err)
			continue
		}
		d.known[s.Name] = c
	}
	for _, name := range slices.Sorted(maps.Keys(d.known)) {
		if err := d.run(ctx, name, d.known[name]); err != nil {
			log.Error("a server does not start", "server", name, "err", err)
		}
	}
	return nil
}

// run resolves secrets and hands the server to the backend.
func (d *Servers) run(ctx context.Context, name string, s config.Server) error {
	c := upstream.Config{Name: name, URL: s.URL, Isolation: s.Isolation, MaxMessage: int(s.MaxLine), Header: http.Header{}}
	if s.Command != "" {
		c.Argv = append([]string{s.Command}, s.Args...)
	}
	var used []string
	resolve := func(v string) (string, error) {
		for _, ref := range config.References(v) {
			plain, err := d.Vault.Resolve(ctx, d.Tenant, ref)
			if err != nil {
				return "", fmt.Errorf("secret %q: %w", ref, err)
			}
			used = append(used, ref)
			v = strings.ReplaceAll(v, "${secret:"+ref+"}", string(plain))
		}
		return v, nil
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		v, err := resolve(s.Env[k])
		if err != nil {
			return err
		}
		c.Env = append(c.Env, k+"="+v)
	}
	for k, v := range s.Headers {
		v, err := resolve(v)
		if err != nil {
			return err
		}
		c.Header.Set(k, v)
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
		if err != nil {
			log.Error("a server's list of tools cannot be used; the earlier one stays", "server", l.Server, "err", err)
		}
	}
}

// AddServer stores a server and starts it, and waits a little so that the
// answer can say how it is.
func (d *Servers) AddServer(ctx context.Context, name string, raw json.RawMessage, e sallyport.Entry) (adminapi.ServerStatus, error) {
	c, err := config.ParseServer(name, raw)
	if err != nil {
		return adminapi.ServerStatus{}, err
	}
	d.mu.Lock()
	_, taken := d.known[name]
	if !taken {
		d.known[name] = c
	}
	d.mu.Unlock()
	if taken {
		return adminapi.ServerStatus{}, &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("there is a server %q", name), Hint: "`sallyport servers remove` it first, or use another name"}
	}
	if err := d.run(ctx, name, c); err != nil {
		d.forget(name)
		return adminapi.ServerStatus{}, badServer(name, err)
	}
	if err := d.Store.PutServer(ctx, store.Server{Tenant: d.Tenant, Name: name, Config: raw}, e); err != nil {
		d.forget(name)
		return adminapi.ServerStatus{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s := d.status(name)
		if settled(s) {
			return s, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, nil
		}
	}
}

// settled reports whether there is more to say of a server than that it starts.
func settled(s adminapi.ServerStatus) bool {
	switch upstream.State(s.State) {
	case upstream.StateReady:
		return s.Tools > 0 || s.Error != ""
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

func (d *Servers) forget(name string) {
	d.Backend.Remove(name)
	d.Catalog.RemoveListing(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, name)
}

// RemoveServer stops a server that was added at run time, and forgets it.
func (d *Servers) RemoveServer(ctx context.Context, name string, e sallyport.Entry) error {
	if _, ok := d.Configured[name]; ok {
		return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("server %q is in the configuration file", name), Hint: "take it out there"}
	}
	if err := d.Store.DeleteServer(ctx, d.Tenant, name, e); err != nil {
		return err
	}
	d.forget(name)
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
func (d *Servers) ServerStatus(context.Context) ([]adminapi.ServerStatus, error) {
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
		source := "database"
		if _, ok := d.Configured[s.Name]; ok {
			source = "configuration"
		}
		warnings := slices.Concat(s.Warnings, remarks[s.Name])
		if s.Degraded != "" {
			warnings = append(warnings, "degraded: "+s.Degraded)
		}
		out = append(out, adminapi.ServerStatus{
			Name: s.Name, State: string(s.State), Era: s.Era, Version: s.Version, Isolation: s.Isolation, Source: source,
			Command: commandOf(c), URL: c.URL, Tools: s.Tools, Restarts: s.Restarts, Error: s.Error, Warnings: warnings,
			Stderr: strings.Join(s.Stderr, "\n"),
		})
	}
	return out, nil
}

func commandOf(c config.Server) string {
	if c.Command == "" {
		return ""
	}
	return cli.CommandLine("", append([]string{c.Command}, c.Args...))
}
