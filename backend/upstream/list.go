package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sallyport.dev/sallyport/backend/upstream/param"
	"sallyport.dev/sallyport/wire"
)

// A Listing is what one server says it offers.
type Listing struct {
	Server       string
	Endpoint     string
	Credential   string
	Instructions string
	Tools        []json.RawMessage // as the server wrote them
	Warnings     []string
	Degraded     string // "pagination" if the list did not come to an end
}

// Bounds of one listing.
const (
	maxPages     = 100
	maxTools     = 20_000
	maxListBytes = 64 << 20
)

// keepListed lists the tools whenever someone asks for it, and now and then.
func (s *server) keepListed(ctx context.Context) {
	refresh := time.NewTicker(s.o.Refresh)
	defer refresh.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.relist:
		case <-refresh.C:
		}
		s.mu.Lock()
		se := s.se
		s.mu.Unlock()
		if se == nil {
			continue
		}
		if _, err := s.list(ctx, se); err != nil && ctx.Err() == nil {
			s.o.Log.Warn("upstream's tools cannot be listed", "server", s.Name, "error", err)
		}
		if !pause(ctx, s.o.BackOff) { // a server that says "changed" all the time
			return
		}
	}
}

// list fetches all pages within the bounds and passes the listing on, one
// listing at a time and none after the server was removed. What was listed
// before stays when it fails.
func (s *server) list(ctx context.Context, se *session) (Listing, error) {
	select {
	case s.lists <- struct{}{}:
		defer func() { <-s.lists }()
	case <-ctx.Done():
		return Listing{}, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Listing)
	defer cancel()
	l := Listing{Server: s.Name, Endpoint: s.endpoint, Credential: s.Credential, Instructions: se.instructions}
	err := se.pages(ctx, &l)
	if err == nil && s.life.Err() != nil {
		err = unknown(s.Name)
	}
	if err == nil {
		s.o.OnListing(l)
	}
	s.mu.Lock() // Status shows a list only when it has been passed on
	defer s.mu.Unlock()
	s.listErr = err
	if err != nil {
		return Listing{}, err
	}
	s.listing = l
	return l, nil
}

func (se *session) pages(ctx context.Context, l *Listing) error {
	seenTools, seenCursors, size := map[string]bool{}, map[string]bool{}, 0
	params := json.RawMessage(nil)
	for page := range maxPages {
		m, err := se.request(ctx, "tools/list", params, false)
		if err == nil && m.Error != nil {
			err = m.Error
			if m.Error.Code == wire.CodeMethodNotFound && page == 0 {
				return nil // it has no tools
			}
		}
		if err != nil {
			if page > 0 && ctx.Err() != nil {
				l.Degraded = "pagination"
				return nil
			}
			return se.s.fail(err)
		}
		tools := wire.Member(m.Result, "tools")
		if len(tools) == 0 || tools[0] != '[' {
			return se.s.fail(fmt.Errorf("%w: tools/list has no list of tools", errMalformed))
		}
		for raw := range wire.Elements(tools) {
			size += len(raw)
			if len(l.Tools) >= maxTools || size > maxListBytes {
				l.Degraded = "size"
				return nil
			}
			se.addTool(l, raw, seenTools)
		}
		cursor := wire.Member(m.Result, "nextCursor")
		if cursor == nil || wire.IsNull(cursor) {
			return nil
		}
		text, ok := wire.String(cursor)
		if !ok || seenCursors[text] {
			break
		}
		seenCursors[text] = true
		params = append(wire.AppendString([]byte(`{"cursor":`), text), '}')
	}
	l.Degraded = "pagination"
	return nil
}

// addTool keeps the first tool of each name. Those without one are kept too:
// the catalogue says what is wrong with them.
func (se *session) addTool(l *Listing, raw json.RawMessage, seen map[string]bool) {
	name, named := wire.String(wire.Member(raw, "name"))
	key := name
	if !named {
		key = "\x00" + string(raw[:min(len(raw), 256)])
	}
	if seen[key] {
		return
	}
	seen[key] = true
	if _, web := se.link.(*webLink); web && se.era == eraModern {
		if _, err := param.Headers(wire.Member(raw, "inputSchema")); err != nil {
			l.Warnings = append(l.Warnings, fmt.Sprintf("tool %.80q is left out: %v", name, err))
			return
		}
	}
	l.Tools = append(l.Tools, raw)
}
