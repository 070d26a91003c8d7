// Package openapi runs tools on HTTP APIs that OpenAPI documents describe: each
// operation is a tool, and a call of it one request.
//
// A document says what the tools are, and nothing else counts of it when a call
// is made: the request follows from the pinned route alone. Calls go to one
// origin, from addresses that were checked as those of sandboxes are; credentials
// come from the secret store, at the moment of the call, and leave for that
// origin only.
package openapi

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/breaker"
)

// Key is the backend's name in a tool's origin.
const Key = "openapi"

// A Config is one API, as the operator wrote it.
type Config struct {
	Name     string
	Document string            // its text, or
	URL      string            // where it is fetched, without credentials
	Base     string            // where calls go, "" for what the document says
	TokenURL string            // where tokens of OAuth are fetched, if not at the API's own origin
	Header   map[string]string // sent with each request; values may refer to secrets
	Auth     map[string]string // credentials by security scheme; values may refer to secrets

	// Credential names the secrets that Header and Auth refer to.
	Credential string

	MaxBody int           // bytes of one answer; 0 is Options.MaxBody
	Calls   int           // at once; 0 is Options.Calls
	Queue   int           // calls that may wait for those; 0 is Options.Queue
	Wait    time.Duration // of those; 0 is Options.Wait
}

// Options bound what APIs may do. A zero field means the default.
type Options struct {
	// Secrets returns a value with each reference to a secret in it resolved.
	Secrets func(ctx context.Context, value string) (string, error)

	// Dial connects to a checked address. It has no default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// OnListing takes each new list of tools: of one API one at a time, and none
	// once Remove has returned.
	OnListing func(Listing)

	Roots   *x509.CertPool // that certificates are held against; nil is the system's
	Log     *slog.Logger
	Version string        // of this gateway, told to APIs
	MaxBody int           // bytes of one answer, default 8 MiB
	Calls   int           // of one API at once, default 64
	Queue   int           // calls that may wait for one API, default 256
	Wait    time.Duration // of those, default 30 s
	Call    time.Duration // for a call that brings no time of its own, default 2 min
	Fetch   time.Duration // for a document or a token, default 30 s
	Refresh time.Duration // between looks at a document that was fetched, default 1 h
	Breaker breaker.Config
	BackOff time.Duration // before a document is asked for again, default 1 s, doubled up to 1 min
}

// A Listing is what one API offers.
type Listing struct {
	Server     string
	Endpoint   string // where calls go
	Credential string
	Tools      []json.RawMessage
	Routes     map[string]*sallyport.Route // by the name of the tool
}

func (o *Options) fill() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnListing == nil {
		o.OnListing = func(Listing) {}
	}
	if o.Secrets == nil {
		o.Secrets = func(_ context.Context, v string) (string, error) { return v, nil }
	}
	o.Version = cmp.Or(o.Version, "0")
	o.MaxBody = cmp.Or(o.MaxBody, 8<<20)
	o.Calls, o.Queue, o.Wait = cmp.Or(o.Calls, 64), cmp.Or(o.Queue, 256), cmp.Or(o.Wait, 30*time.Second)
	o.Call = cmp.Or(o.Call, 2*time.Minute)
	o.Fetch, o.Refresh = cmp.Or(o.Fetch, 30*time.Second), cmp.Or(o.Refresh, time.Hour)
	o.BackOff = cmp.Or(o.BackOff, time.Second)
}

// Backend is a sallyport.Backend of many APIs. It is safe for concurrent use.
type Backend struct {
	o      Options
	client *http.Client
	life   context.Context //nolint:containedctx // the life of the APIs, not of a call
	end    context.CancelFunc

	mu      sync.Mutex // guards what follows
	closed  bool
	apis    map[string]*api
	refused map[string]Status // by name: what could not be added
}

var _ sallyport.Backend = (*Backend)(nil)

// New returns a backend without APIs.
func New(o Options) *Backend {
	o.fill()
	b := &Backend{o: o, client: client(o), apis: map[string]*api{}, refused: map[string]Status{}}
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

// Add reads an API's document and lists its tools. A document that is fetched is
// fetched in the background, again and again until it is there, and now and then
// after that: Status tells how it goes.
func (b *Backend) Add(c Config) error {
	a := newAPI(b, c)
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return errors.New("the backend is closed")
	case b.apis[c.Name] != nil:
		b.mu.Unlock()
		return wrong(c.Name, "the name is taken: remove the other server first")
	}
	b.apis[c.Name] = a
	delete(b.refused, c.Name)
	b.mu.Unlock()
	if c.URL != "" {
		a.follow()
		return nil
	}
	if err := a.take([]byte(c.Document)); err != nil {
		b.Remove(c.Name)
		return wrong(c.Name, "%v", err)
	}
	return nil
}

// Refuse has Status show why an API could not be added, until it is, or removed.
func (b *Backend) Refuse(name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[name] = Status{Name: name, State: StateRefused, Error: err.Error()}
}

// Reload reads the document of an API again: text, or what is fetched. Where that
// fails the one before stays.
func (b *Backend) Reload(name, text string) error {
	a := b.api(name)
	if a == nil {
		return wrong(name, "there is no such API")
	}
	var err error
	if a.URL != "" {
		err = a.fetch()
	} else {
		err = a.take([]byte(text))
	}
	if err != nil {
		return wrong(name, "%v", err)
	}
	return nil
}

func wrong(name, format string, args ...any) error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Execute,
		Message: fmt.Sprintf("server %.80q: %s", name, fmt.Sprintf(format, args...)),
		Hint:    "correct the OpenAPI document, or openapi, base and auth of the server",
	}
}

// Remove forgets an API; its calls end.
func (b *Backend) Remove(name string) {
	b.mu.Lock()
	a := b.apis[name]
	delete(b.apis, name)
	delete(b.refused, name)
	b.mu.Unlock()
	if a != nil {
		a.stop()
	}
}

// Has tells whether there is an API of that name.
func (b *Backend) Has(name string) bool { return b.api(name) != nil }

func (b *Backend) api(name string) *api {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	return b.apis[name]
}

// Status tells how every API does, sorted by name.
func (b *Backend) Status() []Status {
	b.mu.Lock()
	all, out := slices.Collect(maps.Values(b.apis)), slices.Collect(maps.Values(b.refused))
	b.mu.Unlock()
	for _, a := range all {
		out = append(out, a.status())
	}
	slices.SortFunc(out, func(x, y Status) int { return strings.Compare(x.Name, y.Name) })
	return out
}

// Info describes the backend.
func (b *Backend) Info() sallyport.Info { return sallyport.Info{Name: Key, Isolation: "remote"} }

// Check reports whether the backend is open. An API that is away is that API's
// matter.
func (b *Backend) Check(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return outcome.Closed()
	}
	return nil
}

// Close ends every call and forgets the APIs.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	all := slices.Collect(maps.Values(b.apis))
	b.mu.Unlock()
	b.end()
	for _, a := range all {
		a.stop()
	}
	b.client.CloseIdleConnections()
	return nil
}

// Run calls an operation.
func (b *Backend) Run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if err := ctx.Err(); err != nil {
		return sallyport.Output{}, outcome.NotSent(err)
	}
	origin, route := job.Tool.Origin, job.Tool.Route
	a := b.api(origin.Server)
	switch {
	case a == nil || route == nil:
		return sallyport.Output{}, outcome.Gone(origin.Server)
	case !a.owns(origin.Endpoint, route.URL):
		return sallyport.Output{}, outcome.Changed(origin.Server)
	}
	limit := job.Timeout
	if limit <= 0 {
		limit = b.o.Call
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(a.life, cancel)()
	out, err := a.call(bounded, job)
	if err == nil {
		return out, nil
	}
	if ctx.Err() != nil && outcome.IsContext(err) {
		return sallyport.Output{}, outcome.Canceled(ctx, err)
	}
	if outcome.IsContext(err) {
		return sallyport.Output{}, a.late(bounded, limit, err)
	}
	return sallyport.Output{}, err
}

// late is the error of a call that ended before its answer came.
func (a *api) late(ctx context.Context, limit time.Duration, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return outcome.Late(a.Name, limit, err)
	}
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Err: err,
		Message: fmt.Sprintf("server %q was stopped in the middle of the call", a.Name),
		Hint:    outcome.MayHaveActed,
	}
}
