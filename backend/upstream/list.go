package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/failure"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/page"
	"sallyport.dev/sallyport/backend/upstream/param"
	"sallyport.dev/sallyport/backend/upstream/pipe"
	"sallyport.dev/sallyport/backend/upstream/web"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/wire"
)

// A Listing is what one server says it offers.
type Listing struct {
	Server       string
	Endpoint     string
	Credential   string
	Instructions string
	Tools        []json.RawMessage // as the server wrote them
	Holds        bool              // it says that it has resources, listed or not
	Warnings     []string
	Degraded     string // "pagination" if a list did not come to an end

	Resources, Templates, Prompts []json.RawMessage // as the server wrote them
}

// keepListed lists the tools whenever someone asks for it, and now and then.
func (s *server) keepListed(ctx context.Context) {
	refresh := time.NewTicker(s.o.Refresh)
	defer refresh.Stop()
	for {
		always := true
		select {
		case <-ctx.Done():
			return
		case <-s.again:
			always = false
		case <-s.relist:
		case <-refresh.C:
		case <-s.rumour: // more of them may be on their way
			if !pause.For(ctx, s.o.Settle) {
				return
			}
			select {
			case <-s.rumour:
			default:
			}
		}
		s.mu.Lock()
		se := s.se
		s.mu.Unlock()
		if se == nil {
			continue
		}
		if _, err := s.list(ctx, se, always); err != nil && ctx.Err() == nil {
			s.o.Log.Warn("upstream's tools cannot be listed", "server", s.Name, "error", err)
		}
		if !pause.For(ctx, s.o.BackOff) { // a server that says "changed" all the time
			return
		}
	}
}

// list fetches all pages within the bounds and passes the listing on, one
// listing at a time and none after the server was removed. What was listed
// before stays when it fails. One that is as it was need not be passed on again.
func (s *server) list(ctx context.Context, se *session, always bool) (Listing, error) {
	select {
	case s.lists <- struct{}{}:
		defer func() { <-s.lists }()
	case <-ctx.Done():
		return Listing{}, ctx.Err()
	}
	s.set(func() { s.listed = time.Now() })
	ctx, cancel := context.WithTimeout(ctx, s.o.Listing)
	defer cancel()
	l := Listing{Server: s.Name, Endpoint: s.endpoint, Credential: s.Credential, Instructions: se.says.Instructions}
	err := se.pages(ctx, &l)
	if err == nil && s.life.Err() != nil {
		err = outcome.Gone(s.Name)
	}
	if err == nil {
		if _, unnamed := se.link.(*pipe.Pipe); unnamed && se.era == eraLegacy && slices.ContainsFunc(l.Tools, asked.Speaks) {
			s.asks.Store(true)
		}
		if always || !reflect.DeepEqual(l, s.last()) {
			s.o.OnListing(l)
		}
	}
	s.mu.Lock() // Status shows a list only when it has been passed on
	defer s.mu.Unlock()
	s.listErr = err
	if err != nil {
		return Listing{}, err
	}
	s.listing = l
	s.told.Store(true)
	return l, nil
}

// inUse has a server listed that was not for a while: a tool that changed is found out
// also where its server does not say so.
func (s *server) inUse() {
	s.mu.Lock()
	old := s.told.Load() && time.Since(s.listed) > s.o.Again
	s.mu.Unlock()
	if old {
		select {
		case s.again <- struct{}{}:
		default:
		}
	}
}

// pages fetches the tools, and what else the server says that it has. A list
// that fails beside the tools stays as it was, with a warning.
func (se *session) pages(ctx context.Context, l *Listing) error {
	ask := func(ctx context.Context, method string, params json.RawMessage) (wire.Message, error) {
		return se.request(ctx, method, params, false)
	}
	was := se.s.last()
	tools, err := page.All(ctx, ask, "tools/list", "tools", "name")
	if errors.Is(err, page.ErrNoList) {
		err = fmt.Errorf("%w: tools/list has no list of tools", link.ErrMalformed)
	}
	if err != nil && (len(tools.Items) == 0 || len(was.Tools) > 0 && was.Degraded == "") {
		return se.s.fail(err)
	}
	if err != nil { // a part is better than nothing, and than another part
		l.warn("tools/list broke off, so this is a part of the tools: %s", failure.Brief(err))
	}
	if se.echoes.Store(page.Echoes(tools.Items, l.Server)); se.echoes.Load() {
		return se.leadsBack()
	}
	l.Degraded = tools.Degraded
	l.twice("tools", tools.Twice)
	for _, raw := range tools.Items {
		se.addTool(l, raw)
	}
	for _, more := range []struct {
		capability, method, member, key string
		to                              *[]json.RawMessage
		was                             []json.RawMessage
	}{
		{"resources", "resources/list", "resources", "uri", &l.Resources, was.Resources},
		{"resources", "resources/templates/list", "resourceTemplates", "uriTemplate", &l.Templates, was.Templates},
		{"prompts", "prompts/list", "prompts", "name", &l.Prompts, was.Prompts},
	} {
		if wire.Member(se.says.Capabilities, more.capability) == nil {
			continue
		}
		list, err := page.All(ctx, ask, more.method, more.member, more.key)
		*more.to = list.Items
		l.Degraded = cmp.Or(l.Degraded, list.Degraded)
		l.twice(more.member, list.Twice)
		switch {
		case err != nil && (len(more.was) > 0 || len(list.Items) == 0):
			*more.to = more.was
			l.warn("%s failed, so what it said before still counts: %s", more.method, failure.Brief(err))
		case err != nil:
			l.warn("%s broke off, so this is a part of them: %s", more.method, failure.Brief(err))
		}
	}
	l.Holds = wire.Member(se.says.Capabilities, "resources") != nil
	return nil
}

func (l *Listing) warn(format string, args ...any) {
	l.Warnings = append(l.Warnings, fmt.Sprintf(format, args...))
}

// twice tells of names that a server gives to several things.
func (l *Listing) twice(what string, names []string) {
	for _, name := range names {
		l.warn("of several %s that are called %.80q the first is kept", what, name)
	}
}

// last is the listing that was passed on last.
func (s *server) last() Listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listing
}

// addTool leaves out what an HTTP client must not show.
func (se *session) addTool(l *Listing, raw json.RawMessage) {
	if _, isWeb := se.link.(*web.Link); isWeb && se.era == eraModern {
		if _, err := param.Headers(wire.Member(raw, "inputSchema")); err != nil {
			name, _ := wire.String(wire.Member(raw, "name"))
			l.warn("tool %.80q is left out: %v", name, err)
			return
		}
	}
	l.Tools = append(l.Tools, raw)
}

// Silent names the servers that run, or should, and have not told yet what they
// have.
func (b *Backend) Silent() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, s := range b.servers {
		if !s.told.Load() {
			names = append(names, name)
		}
	}
	return names
}
