package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/pace"
	"sallyport.dev/sallyport/backend/upstream/result"
	"sallyport.dev/sallyport/backend/upstream/web"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/wire"
)

// heard takes what a server says about itself.
func (s *server) heard(m wire.Message) {
	switch m.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		s.rumoured()
	case "notifications/resources/updated":
		if uri, ok := wire.String(wire.Member(m.Params, "uri")); ok && s.follows.Has(uri) {
			s.o.OnUpdate(s.Name, uri)
		}
	}
}

// rumoured has the server listed soon.
func (s *server) rumoured() {
	select {
	case s.rumour <- struct{}{}:
	default:
	}
}

// offers reports whether the server says that it can do something with its
// resources, tools or prompts.
func (se *session) offers(what string, flag string) bool {
	return string(wire.Path(se.says.Capabilities, what, flag)) == "true"
}

// follow has the server tell when a resource changes. Each follow needs an
// Unfollow.
func (s *server) follow(ctx context.Context, se *session, address string) error {
	if !se.offers("resources", "subscribe") {
		return &sallyport.Error{
			Code: sallyport.NotFound, Step: sallyport.Execute, Err: sallyport.ErrNotExecuted,
			Message: fmt.Sprintf("server %q does not tell when its resources change", s.Name), Hint: "read it again from time to time",
		}
	}
	if !s.follows.Add(address) || se.era == eraModern { // hearken listens anew
		return nil
	}
	err := se.subscribe(ctx, "resources/subscribe", address)
	if err != nil {
		s.follows.Drop(address)
		return s.fail(err)
	}
	return nil
}

func (se *session) subscribe(ctx context.Context, method, address string) error {
	m, err := se.request(ctx, method, append(wire.AppendString([]byte(`{"uri":`), address), '}'), false)
	if err == nil && m.Error != nil {
		err = m.Error
	}
	return err
}

// follower drops one follow of a resource from the connection that has it.
func (s *server) follower(address string) *server {
	if s == nil {
		return nil
	}
	s.owns.mu.Lock()
	all := append(slices.Collect(maps.Values(s.owns.all)), s)
	s.owns.mu.Unlock()
	i := slices.IndexFunc(all, func(s *server) bool { return s.follows.Has(address) })
	if i < 0 || !all[i].follows.Drop(address) {
		return nil
	}
	return all[i]
}

// Unfollow ends one follow of a resource.
func (b *Backend) Unfollow(name, address string) {
	s := b.server(name).follower(address)
	if s == nil {
		return
	}
	s.mu.Lock()
	se := s.se
	s.mu.Unlock()
	if se != nil && se.era == eraLegacy {
		go func() {
			ctx, cancel := context.WithTimeout(s.life, 5*time.Second)
			defer cancel()
			_ = se.subscribe(ctx, "resources/unsubscribe", address) // what comes all the same is not passed on
		}()
	}
}

// hearken keeps the stream open on which a server tells of changes, for as long
// as the session lasts.
func (s *server) hearken(ctx context.Context, se *session) {
	l, isWeb := se.link.(*web.Link)
	switch {
	case se.era == eraModern:
		s.retryListening(ctx, se.listen)
		return
	case isWeb && (se.tellsChanges() || l.InSession()): // on that stream it may ask, too
		if !s.mute {
			go s.subscribeAgain(ctx, se)
		}
		s.retryListening(ctx, l.Hear)
	default:
		s.subscribeAgain(ctx, se)
	}
}

// tellsChanges reports whether there is anything to hear from the server.
func (se *session) tellsChanges() bool {
	return se.offers("tools", "listChanged") || se.offers("prompts", "listChanged") || se.offers("resources", "listChanged") || se.offers("resources", "subscribe")
}

// subscribeAgain tells a server that was started again what is followed.
func (s *server) subscribeAgain(ctx context.Context, se *session) {
	all, _ := s.follows.All()
	for _, address := range all {
		if err := se.subscribe(ctx, "resources/subscribe", address); err != nil && ctx.Err() == nil {
			s.o.Log.Warn("a resource is not followed any more", "server", s.Name, "error", err)
		}
	}
}

// retryListening listens again whenever a stream ends, with back-off where it
// ended soon. What the server said meanwhile nobody heard, so it is listed again.
func (s *server) retryListening(ctx context.Context, listen func(context.Context) error) {
	for failures := 0; ctx.Err() == nil; {
		begun := time.Now()
		err := listen(ctx)
		switch {
		case errors.Is(err, link.ErrNoStream) || ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			continue
		case time.Since(begun) > s.o.Settle && !s.mute:
			s.rumoured()
		}
		switch {
		case time.Since(begun) > stable:
			failures = 0
		default:
			failures++
			if !pause.For(ctx, pace.Before(failures, time.Second, maxBackOff)) {
				return
			}
		}
	}
}

// listen asks a modern server to tell what changes, until the set of followed
// resources does: then it returns nil, to be asked again.
func (se *session) listen(ctx context.Context) error {
	all, changed := se.s.follows.All()
	b := []byte(`{"notifications":{`)
	for _, what := range []string{"tools", "prompts", "resources"} {
		if se.offers(what, "listChanged") {
			b = append(append(append(b, '"'), what...), `ListChanged":true,`...)
		}
	}
	if len(all) > 0 {
		list, err := json.Marshal(all)
		if err != nil {
			return err
		}
		b = append(append(append(b, `"resourceSubscriptions":`...), list...), ',')
	}
	if b[len(b)-1] == '{' { // nothing to hear, now
		select {
		case <-changed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	m, err := se.request(ctx, "subscriptions/listen", append(b[:len(b)-1], "}}"...), false)
	cancel()
	<-moved
	select {
	case <-changed:
		return nil
	default:
	}
	if err == nil && m.Error != nil {
		err = m.Error
		if result.NeverRan(m.Error.Code) || m.Error.Code == wire.CodeInvalidParams {
			err = link.ErrNoStream // it does not know the method, or does not want this
		}
	}
	if err == nil {
		err = io.EOF // it ended the stream
	}
	return err
}
