package main

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
	"sallyport.dev/sallyport/store/sqlite"
)

// A serverDesk keeps the upstreams: those of the configuration, which wins, and
// those added at run time.
type serverDesk struct {
	tenant     string
	store      *sqlite.Store
	vault      *secret.Vault
	catalog    *catalog.Catalog
	backend    *upstream.Backend
	configured map[string]config.Server

	mu    sync.Mutex // guards what follows
	known map[string]config.Server
}

// start starts every server. One that cannot be used is shown by Status and
// keeps nobody else out.
func (d *serverDesk) start(ctx context.Context, log *slog.Logger) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = maps.Clone(d.configured)
	added, err := d.store.Servers(ctx, d.tenant)
	if err != nil {
		return err
	}
	for _, s := range added {
		if _, ok := d.configured[s.Name]; ok {
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
func (d *serverDesk) run(ctx context.Context, name string, s config.Server) error {
	c := upstream.Config{Name: name, URL: s.URL, Isolation: s.Isolation, MaxMessage: int(s.MaxLine), Header: http.Header{}}
	if s.Command != "" {
		c.Argv = append([]string{s.Command}, s.Args...)
	}
	var used []string
	resolve := func(v string) (string, error) {
		for _, ref := range config.References(v) {
			plain, err := d.vault.Resolve(ctx, d.tenant, ref)
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
	return d.backend.Add(c)
}

// listed takes each new list of tools into the catalogue.
func (d *serverDesk) listed(log *slog.Logger) func(upstream.Listing) {
	return func(l upstream.Listing) {
		d.mu.Lock()
		timeout := d.known[l.Server].Timeout
		d.mu.Unlock()
		err := d.catalog.SetListing(context.Background(), catalog.Listing{
			Server: l.Server, Endpoint: l.Endpoint, Credential: l.Credential, Instructions: l.Instructions, Timeout: timeout, Tools: l.Tools,
		})
		if err != nil {
			log.Error("a server's list of tools cannot be used; the earlier one stays", "server", l.Server, "err", err)
		}
	}
}

// AddServer stores a server and starts it, and waits a little so that the
// answer can say how it is.
func (d *serverDesk) AddServer(ctx context.Context, name string, raw json.RawMessage, e sallyport.Entry) (adminapi.ServerStatus, error) {
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
	if err := d.store.PutServer(ctx, store.Server{Tenant: d.tenant, Name: name, Config: raw}, e); err != nil {
		d.forget(name)
		return adminapi.ServerStatus{}, err
	}
	for until := time.Now().Add(45 * time.Second); ; {
		s := d.status(name)
		if s.State == string(upstream.StateReady) && (s.Tools > 0 || s.Error != "") || s.State == string(upstream.StateRefused) ||
			s.State == string(upstream.StateDown) || time.Now().After(until) || !pause(ctx, 50*time.Millisecond) {
			return s, nil
		}
	}
}

func badServer(name string, err error) error {
	if _, ok := errors.AsType[*sallyport.Error](err); ok {
		return err
	}
	return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("server %q: %v", name, err)}
}

func (d *serverDesk) forget(name string) {
	d.backend.Remove(name)
	d.catalog.RemoveListing(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, name)
}

func (d *serverDesk) RemoveServer(ctx context.Context, name string, e sallyport.Entry) error {
	if _, ok := d.configured[name]; ok {
		return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("server %q is in the configuration file", name), Hint: "take it out there"}
	}
	if err := d.store.DeleteServer(ctx, d.tenant, name, e); err != nil {
		return err
	}
	d.forget(name)
	return nil
}

func (d *serverDesk) status(name string) adminapi.ServerStatus {
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
func (d *serverDesk) ServerStatus(context.Context) ([]adminapi.ServerStatus, error) {
	d.mu.Lock()
	known := maps.Clone(d.known)
	d.mu.Unlock()
	remarks := map[string][]string{}
	for _, w := range d.catalog.Warnings() {
		remarks[w.Server] = append(remarks[w.Server], strings.TrimPrefix(w.Tool+": "+w.Reason, ": "))
	}
	var out []adminapi.ServerStatus
	for _, s := range d.backend.Status() {
		c := known[s.Name]
		source := "database"
		if _, ok := d.configured[s.Name]; ok {
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
