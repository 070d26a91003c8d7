package openapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/openapi/document"
	"sallyport.dev/sallyport/backend/upstream/breaker"
	"sallyport.dev/sallyport/backend/upstream/pace"
	"sallyport.dev/sallyport/backend/upstream/turn"
)

// The states of an API.
const (
	StateStarting = "starting" // its document is fetched for the first time
	StateReady    = "ready"
	StateDown     = "down"    // there is no document; Error says why
	StateRefused  = "refused" // it could not be added; Error says why
)

// A Status tells how one API does.
type Status struct {
	Name     string
	State    string
	Version  string // of OpenAPI
	Base     string // where calls go
	Tools    int
	Error    string        // why the document cannot be read, or was not read again
	Circuit  breaker.State // which calls pass
	Opened   uint64        // how often none did
	Warnings []string
}

// api is one API.
type api struct {
	Config
	b       *Backend
	life    context.Context //nolint:containedctx // ends when the API is removed, with all its calls
	end     context.CancelFunc
	work    sync.WaitGroup
	line    *turn.Line
	circuit *breaker.Breaker
	keys    tokens

	taking sync.Mutex // held while a document is taken in

	mu      sync.Mutex // guards what follows
	doc     *document.Document
	sum     [sha256.Size]byte // of the text of doc
	listed  bool              // its tools were passed on
	lastErr error
}

func newAPI(b *Backend, c Config) *api {
	a := &api{Config: c, b: b, line: turn.New(cmp.Or(c.Calls, b.o.Calls), cmp.Or(c.Queue, b.o.Queue), cmp.Or(c.Wait, b.o.Wait)), circuit: breaker.New(b.o.Breaker)}
	a.life, a.end = context.WithCancel(b.life)
	return a
}

func (a *api) stop() {
	a.end()
	a.work.Wait()
	a.taking.Lock() // no listing comes after this
	defer a.taking.Unlock()
}

// take reads a document and passes its tools on. The one before stays where that
// fails, and where nothing has changed.
func (a *api) take(text []byte) error {
	a.taking.Lock()
	defer a.taking.Unlock()
	sum := sha256.Sum256(text)
	if a.same(sum) {
		return nil
	}
	doc, err := document.Read(text, a.URL, a.Base)
	if err == nil && doc.Foreign && a.Base == "" && len(a.Auth)+len(a.Header) > 0 {
		err = fmt.Errorf("the document sends calls, and your credential, to %s: if that is right, say so with base", doc.Base)
	}
	a.mu.Lock()
	if a.lastErr = err; err == nil {
		a.doc, a.sum = doc, sum
	}
	a.mu.Unlock()
	if err != nil || a.life.Err() != nil {
		return err
	}
	l := Listing{Server: a.Name, Endpoint: doc.Base, Credential: a.Credential, Routes: map[string]*sallyport.Route{}}
	for _, o := range doc.Operations {
		l.Tools = append(l.Tools, o.Definition)
		l.Routes[o.Name] = o.Route
	}
	a.b.o.OnListing(l)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listed = true
	return nil
}

// same tells whether a text is the one that was read last, and forgets that
// another could not be.
func (a *api) same(sum [sha256.Size]byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.doc == nil || a.sum != sum {
		return false
	}
	a.lastErr = nil
	return true
}

// follow fetches the document until it is there, and now and then after that.
func (a *api) follow() {
	a.work.Go(func() {
		for failures := 0; ; {
			err := a.fetch()
			wait := a.b.o.Refresh
			if failures++; err == nil {
				failures = 0
			} else {
				wait = pace.Before(failures, a.b.o.BackOff, time.Minute)
				a.b.o.Log.Warn("an OpenAPI document cannot be read", "server", a.Name, "error", err)
			}
			select {
			case <-time.After(wait):
			case <-a.life.Done():
				return
			}
		}
	})
}

// fetch gets the document, without any credential.
func (a *api) fetch() error {
	ctx, cancel := context.WithTimeout(a.life, a.b.o.Fetch)
	defer cancel()
	text, err := a.download(ctx)
	if err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lastErr = err
		return err
	}
	return a.take(text)
}

func (a *api) download(ctx context.Context) ([]byte, error) {
	target, err := url.Parse(a.URL)
	if err != nil {
		return nil, err
	}
	for range maxHops {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/json, application/yaml, */*")
		req.Header.Set("User-Agent", "sallyport/"+a.b.o.Version)
		resp, err := a.b.client.Do(req)
		if err != nil {
			return nil, plain(err)
		}
		next, moved := elsewhere(resp, target)
		if moved {
			_ = resp.Body.Close()
			target = next
			continue
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the document's server answers %d%s", resp.StatusCode, leads(resp))
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, document.MaxBytes+1))
		return text, err
	}
	return nil, fmt.Errorf("the document's server redirects more than %d times", maxHops)
}

// leads says where a redirect that is not followed leads.
func leads(resp *http.Response) string {
	if at, err := resp.Location(); err == nil {
		return fmt.Sprintf(": it is at %.200s, and redirects to another origin are not followed", at.Redacted())
	}
	return ""
}

// owns tells whether a route is one of this API's, at the origin that it has now.
func (a *api) owns(endpoint, target string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.doc == nil {
		return false
	}
	return (endpoint == "" || endpoint == a.doc.Base) && (target == a.doc.Base || strings.HasPrefix(target, a.doc.Base+"/"))
}

// unasked says which credentials nothing asks for: most often one is misspelt.
// Preconditions: mu is held, and there is a document.
func (a *api) unasked() (warnings []string) {
	asked := map[string]bool{}
	for _, o := range a.doc.Operations {
		for _, part := range slices.Concat(o.Route.Auth...) {
			asked[part.Scheme] = true
		}
	}
	for _, scheme := range slices.Sorted(maps.Keys(a.Auth)) {
		if !asked[scheme] {
			known := strings.Join(slices.Sorted(maps.Keys(asked)), ", ")
			warnings = append(warnings, fmt.Sprintf("the credential of %.80q goes nowhere: operations ask for %.300s", scheme, cmp.Or(known, "none")))
		}
	}
	return warnings
}

func (a *api) status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := Status{Name: a.Name, State: StateStarting, Base: a.Base}
	if a.listed {
		s.State, s.Base, s.Version = StateReady, a.doc.Base, "openapi "+a.doc.Version
		s.Tools, s.Warnings = len(a.doc.Operations), slices.Concat(a.unasked(), a.doc.Warnings)
	}
	r := a.circuit.Read()
	if s.Circuit, s.Opened = r.State, r.Opened; r.State != breaker.Closed {
		s.Error = a.cutOff(r.Wait).Message
	}
	if a.lastErr != nil {
		s.Error = a.lastErr.Error()
		if a.doc == nil {
			s.State = StateDown
		}
	}
	return s
}
