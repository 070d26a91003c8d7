// Package upstream runs tools on MCP servers, and reads what they hold: programs that speak over their
// standard input and output, and servers behind a URL (streamable HTTP), of
// both protocol eras.
//
// Each server is supervised on its own: started, found out about, listed,
// restarted with back-off. What one of them does never stops another. Bytes
// pass exactly: arguments and results are spliced, never decoded and encoded
// again.
package upstream

import (
	"cmp"
	"context"
	"errors"
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
	"sallyport.dev/sallyport/backend/upstream/entry"
	"sallyport.dev/sallyport/backend/upstream/web"
)

// A Config is one server, as the operator wrote it.
type Config = entry.Config

// Processes say how many a program is.
type Processes = entry.Processes

// Options bound what servers may do. A zero field means the default.
type Options struct {
	Launchers map[string]Launcher // by Config.Isolation
	Environ   []string            // the gateway's environment; only base variables of it are used
	Version   string              // of this gateway, told to servers
	Instance  string              // names this gateway among those behind it; "" finds no loops

	// OnListing takes each new list of tools: of one server one at a time, and
	// none once Remove has returned. It must not call Remove.
	OnListing func(Listing)

	// OnUpdate is told that a resource that is followed has changed. It must not block.
	OnUpdate func(server, address string)

	Log        *slog.Logger
	HTTP       http.RoundTripper // default one that connects with Dial
	Dial       func(ctx context.Context, network, address string) (net.Conn, error)
	MaxMessage int           // bytes of one message from a server, default 8 MiB
	Budget     time.Duration // a call waits this long for its server, default 10 s
	Connect    time.Duration // for start and handshake, default 30 s
	Probe      time.Duration // for the answer to server/discover, default 5 s
	Listing    time.Duration // for one listing, default 10 s
	Refresh    time.Duration // between listings, default 5 min
	Again      time.Duration // between listings of a server that is called, which need not say that it changed; default 1 min
	Settle     time.Duration // after a server says that what it has changed, before it is listed, default 500 ms
	Call       time.Duration // for a call that brings no time of its own, default 2 min
	Grace      time.Duration // for a program to end, default 3 s
	Calls      int           // of one server at once, default 64
	Queue      int           // calls that may wait for one server, default 256
	Wait       time.Duration // of calls that wait for one server, default 30 s
	BackOff    time.Duration // before the first restart at most, default 100 ms, doubled up to 30 s
	Pulse      time.Duration // of silence after which a program is asked whether it still answers, default 15 s
	Answer     time.Duration // for the answer to that, default 30 s
	Breaker    breaker.Config
}

func (o *Options) fill() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnListing == nil {
		o.OnListing = func(Listing) {}
	}
	if o.OnUpdate == nil {
		o.OnUpdate = func(string, string) {}
	}
	if o.HTTP == nil {
		o.HTTP = web.Transport(o.Dial)
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 8 << 20
	}
	if o.Calls == 0 {
		o.Calls = 64
	}
	if o.Queue == 0 {
		o.Queue = 256
	}
	if o.Version == "" {
		o.Version = "0"
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Budget, 10 * time.Second}, {&o.Connect, 30 * time.Second}, {&o.Probe, 5 * time.Second},
		{&o.Listing, 10 * time.Second}, {&o.Refresh, 5 * time.Minute}, {&o.Again, time.Minute}, {&o.Settle, 500 * time.Millisecond}, {&o.Call, 2 * time.Minute},
		{&o.Grace, 3 * time.Second}, {&o.BackOff, 100 * time.Millisecond}, {&o.Wait, 30 * time.Second}, {&o.Pulse, 15 * time.Second}, {&o.Answer, 30 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

// Backend is a sallyport.Backend of many servers. It is safe for concurrent use.
type Backend struct {
	o      Options
	ctx    context.Context //nolint:containedctx // the life of the servers, not of a call
	cancel context.CancelFunc

	mu      sync.Mutex // guards what follows
	closed  bool
	servers map[string]*server
	refused map[string]Status // by name: configurations that cannot be used
}

var _ sallyport.Backend = (*Backend)(nil)

// New starts a backend with servers. A configuration that cannot be used is
// reported by Status and does not keep the others out.
func New(configs []Config, o Options) *Backend {
	o.fill()
	b := &Backend{o: o, servers: map[string]*server{}, refused: map[string]Status{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for _, c := range configs {
		_ = b.Add(c)
	}
	return b
}

// Add starts one more server. An error says what is wrong with its
// configuration; Status shows it too.
func (b *Backend) Add(c Config) error {
	err := c.Check(slices.Sorted(maps.Keys(b.o.Launchers)))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errors.New("the backend is closed")
	}
	if _, taken := b.servers[c.Name]; taken {
		return c.Wrong("the name is taken: remove the other server first")
	}
	if err != nil {
		b.refused[c.Name] = Status{Name: c.Name, State: StateRefused, Error: err.Error(), Isolation: c.Isolated()}
		return err
	}
	delete(b.refused, c.Name)
	o := b.o
	if c.MaxMessage > 0 {
		o.MaxMessage = c.MaxMessage
	}
	s := prepare(c, &o)
	s.begin(b.ctx)
	b.servers[c.Name] = s
	return nil
}

// Remove stops a server and forgets it. It returns when its processes are gone.
func (b *Backend) Remove(name string) {
	b.mu.Lock()
	s := b.servers[name]
	delete(b.servers, name)
	delete(b.refused, name)
	b.mu.Unlock()
	if s != nil {
		s.stop()
	}
}

func (b *Backend) server(name string) *server {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	return b.servers[name]
}

// Tools lists a server's tools now. OnListing gets the list too.
func (b *Backend) Tools(ctx context.Context, name string) (Listing, error) {
	s := b.server(name)
	if s == nil {
		return Listing{}, outcome.Gone(name)
	}
	se, err := s.acquire(ctx)
	if err != nil {
		return Listing{}, err
	}
	return s.list(ctx, se, true)
}

// Status tells how every server does, sorted by name.
func (b *Backend) Status() []Status {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.refused))
	servers := slices.Collect(maps.Values(b.servers))
	b.mu.Unlock()
	for _, s := range servers {
		all = append(all, s.status())
	}
	slices.SortFunc(all, func(x, y Status) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// Info describes the backend. The isolation of each server is in its Status.
func (b *Backend) Info() sallyport.Info { return sallyport.Info{Name: "upstream", Isolation: "remote"} }

// IsolationOf says how the server of a tool is kept apart: "none", "uid",
// "gvisor", or "remote" for one behind a URL.
func (b *Backend) IsolationOf(t sallyport.Tool) string {
	if s := b.server(t.Origin.Server); s != nil {
		return s.Isolated()
	}
	return ""
}

// Check reports whether the backend is open. A server that is down is that
// server's matter.
func (b *Backend) Check(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return outcome.Closed()
	}
	return nil
}

// Close stops every server at once and waits for them.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	servers := slices.Collect(maps.Values(b.servers))
	b.mu.Unlock()
	b.cancel()
	for _, s := range servers {
		<-s.ended
	}
	return nil
}

// Run calls a tool.
func (b *Backend) Run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if err := ctx.Err(); err != nil {
		return sallyport.Output{}, outcome.NotSent(err)
	}
	origin := job.Tool.Origin
	s := b.server(origin.Server)
	if s == nil {
		return sallyport.Output{}, outcome.Gone(origin.Server)
	}
	if origin.Endpoint != "" && origin.Endpoint != s.endpoint {
		return sallyport.Output{}, outcome.Changed(origin.Server)
	}
	s, err := s.of(job.Who)
	if err != nil {
		return sallyport.Output{}, err
	}
	limit := cmp.Or(max(job.Timeout, 0), b.o.Call)
	bounded, cancel := context.WithTimeout(ctx, limit)
	if job.Ask != nil { // who asks its client bounds the call, and stops the clock meanwhile
		bounded = ctx
	}
	defer cancel()
	out, err := s.run(bounded, job)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil && outcome.IsContext(err):
		return sallyport.Output{}, outcome.Canceled(ctx, err)
	case bounded.Err() != nil && outcome.IsContext(err):
		return sallyport.Output{}, outcome.Late(origin.Server, limit, err)
	}
	return sallyport.Output{}, err
}
