package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/backend/openapi"
	"sallyport.dev/sallyport/backend/openapi/document"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/wire"
)

// parseServer reads one stored server. The text of an API's document stands beside
// its settings: no gateway opens a file that somebody names to it.
func parseServer(name string, raw json.RawMessage) (c config.Server, document string, err error) {
	if !wire.IsObject(raw) {
		c, err = config.ParseServer(name, raw)
		return c, "", err
	}
	if v := wire.Member(raw, "document"); v != nil {
		document, _ = wire.String(v)
		if raw, err = wire.RemoveMember(raw, "document"); err != nil {
			return c, "", err
		}
	}
	c, err = config.ParseServer(name, raw)
	if err == nil && c.OpenAPI != "" && !config.IsURL(c.OpenAPI) && document == "" {
		err = fmt.Errorf("the text of %.200q is missing: add it with `sallyport servers add %s --openapi FILE`, or name it in sallyport.yaml", c.OpenAPI, name)
	}
	return c, document, err
}

// runAPI hands an HTTP API to its backend. Its secrets are resolved at each call;
// here it is only seen that they are there.
func (d *Servers) runAPI(ctx context.Context, name string, s config.Server, text string) (err error) {
	defer func() {
		if err != nil {
			d.APIs.Refuse(name, err)
		}
	}()
	c := openapi.Config{
		Name: name, Document: text, Base: s.Base, TokenURL: s.TokenURL, Header: s.Headers, Auth: s.Auth, MaxBody: int(s.MaxLine), Calls: s.Calls, Queue: s.Queue, Wait: s.Wait,
	}
	var used []string
	for _, v := range slices.Concat(slices.Collect(maps.Values(s.Headers)), slices.Collect(maps.Values(s.Auth))) {
		if _, err := d.Resolve(ctx, v); err != nil {
			return err
		}
		used = append(used, config.References(v)...)
	}
	slices.Sort(used)
	c.Credential = strings.Join(slices.Compact(used), ",")
	switch {
	case config.IsURL(s.OpenAPI):
		c.URL = s.OpenAPI
	case text == "":
		if c.Document, err = readDocument(s.OpenAPI); err != nil {
			return err
		}
	}
	return d.APIs.Add(c)
}

// reloadAPI reads an API's document again. The one before stays where that fails.
func (d *Servers) reloadAPI(ctx context.Context, name string, s config.Server, text string) (err error) {
	if !d.APIs.Has(name) {
		return d.runAPI(ctx, name, s, text)
	}
	if text == "" && !config.IsURL(s.OpenAPI) {
		if text, err = readDocument(s.OpenAPI); err != nil {
			return err
		}
	}
	return d.APIs.Reload(name, text)
}

func readDocument(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", errors.Join(err, fmt.Errorf("%s is not a file", path))
	}
	text, err := io.ReadAll(io.LimitReader(f, document.MaxBytes+1))
	return string(text), err
}

// Resolve returns a value with its references to secrets resolved.
func (d *Servers) Resolve(ctx context.Context, v string) (string, error) {
	for _, ref := range config.References(v) {
		plain, err := d.Vault.Resolve(ctx, d.Tenant, ref)
		if err != nil {
			return "", fmt.Errorf("secret %q: %w", ref, err)
		}
		v = strings.ReplaceAll(v, "${secret:"+ref+"}", string(plain))
	}
	return v, nil
}

// ListedAPI takes each new list of an API's tools into the catalogue.
func (d *Servers) ListedAPI(log *slog.Logger) func(openapi.Listing) {
	return func(l openapi.Listing) {
		d.mu.Lock()
		timeout := d.known[l.Server].Timeout
		d.mu.Unlock()
		err := d.Catalog.SetListing(context.Background(), catalog.Listing{
			Server: l.Server, Endpoint: l.Endpoint, Credential: l.Credential, Timeout: timeout, Tools: l.Tools, Routes: l.Routes,
		})
		if err != nil {
			log.Error("an API's list of tools cannot be used; the earlier one stays", "server", l.Server, "err", err)
		}
	}
}

// apiStatus says how each API is.
func (d *Servers) apiStatus(known map[string]config.Server, remarks map[string][]string) (out []adminapi.ServerStatus) {
	for _, s := range d.APIs.Status() {
		out = append(out, adminapi.ServerStatus{
			Name: s.Name, State: s.State, Version: s.Version, Isolation: d.APIs.Info().Isolation, Source: d.source(s.Name),
			OpenAPI: known[s.Name].OpenAPI, URL: s.Base, Tools: s.Tools, Circuit: string(s.Circuit), Opened: s.Opened, Error: s.Error, Warnings: slices.Concat(s.Warnings, remarks[s.Name]),
		})
	}
	return out
}
