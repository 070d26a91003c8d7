package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/pace"
	"sallyport.dev/sallyport/backend/upstream/sse"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/limit/bulk"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/wire"
)

const (
	maxResumes = 20              // in a row that fail, of one answer
	maxPoll    = 2 * time.Second // between two that bring nothing, where the server does not say how long
)

// stream reads an answer that comes as server-sent events. A legacy server may
// hang up and go on when asked for what came after the last event, however often: the
// call's own time bounds it.
func (l *Link) stream(ctx context.Context, resp *http.Response, r link.Request) (wire.Message, error) {
	lastID, retry, empty := "", time.Duration(-1), 0
	for {
		begun := time.Now()
		events := wire.NewEventReader(resp.Body, l.o.Most)
		events.Large(bulk.Light, func() error { return r.Room.Want(ctx, l.o.Most) })
		m, found, err := l.events(events, r)
		if found {
			sse.Finish(resp.Body)
			return m, err
		}
		_ = resp.Body.Close()
		lastID = cmp.Or(events.LastID(), lastID)
		if said := events.Retry(); said >= 0 {
			retry = said
		}
		if lastID == "" || l.o.Modern() || ctx.Err() != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("upstream_disconnected: the stream ended before the answer")
			}
			return wire.Message{}, err
		}
		if empty++; time.Since(begun) > maxPoll {
			empty = 0
		}
		_ = r.Room.Want(ctx, 0) // the rest comes anew
		if resp, err = l.goOn(ctx, lastID, retry, empty); err != nil {
			return wire.Message{}, err
		}
	}
}

// goOn asks for the rest of a stream, when the server wants to be asked.
func (l *Link) goOn(ctx context.Context, lastID string, retry time.Duration, empty int) (resp *http.Response, err error) {
	wait := min(retry, maxWait)
	if retry < 0 {
		wait = pace.Span(empty, time.Second/10, maxPoll)
	}
	for failures := 1; ; failures++ {
		if !pause.For(ctx, max(wait, time.Second/10)) {
			return nil, ctx.Err()
		}
		resp, err = l.resume(ctx, lastID)
		if err == nil || failures == maxResumes || !status.Passes(err) {
			return resp, err
		}
	}
}

func (l *Link) resume(ctx context.Context, lastID string) (*http.Response, error) {
	req, err := l.newRequest(ctx, http.MethodGet, nil, link.Request{Header: map[string]string{
		wire.HeaderLastEventID: lastID, "Accept": wire.TypeSSE,
	}})
	if err != nil {
		return nil, err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || kind != wire.TypeSSE {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("upstream_disconnected: the stream ended before the answer and cannot be resumed: %w", &status.Error{Code: resp.StatusCode, Text: "the stream"})
	}
	return resp, nil
}

// events reads messages up to the answer. found is false where the stream
// ended, with err, before it.
func (l *Link) events(events *wire.EventReader, r link.Request) (m wire.Message, found bool, err error) {
	for {
		_ = r.Room.Want(context.Background(), 0) // what came before needs none any more
		e, err := events.Next()
		if err != nil {
			if errors.Is(err, wire.ErrEventTooLarge) {
				return m, true, link.ErrTooLarge
			}
			return m, false, err
		}
		if e.Name != "message" || len(e.Data) == 0 {
			continue
		}
		if len(e.Data) > bulk.Light {
			_ = r.Room.Want(context.Background(), len(e.Data)) // less than it has
		}
		data := append([]byte(nil), e.Data...) // the reader uses its own again
		for part := range wire.Each(data) {
			if m, found, err = l.event(part, r); found {
				return m, true, err
			}
		}
	}
}

// event takes one message in; found is true for the answer.
func (l *Link) event(data []byte, r link.Request) (m wire.Message, found bool, err error) {
	m, err = wire.ParseAnswer(data)
	switch {
	case err != nil:
		id := wire.Member(data, "id")
		return m, string(id) == string(r.RawID()), fmt.Errorf("%w: %w", link.ErrMalformed, err)
	case m.IsResponse():
		return m, m.ID == nil || string(m.ID) == string(r.RawID()), nil
	case m.IsRequest():
		if !l.o.Modern() { // modern servers must not ask
			if r.Method == "" { // the standing stream, which is nobody's
				l.o.Room.Put(m, l.Send)
			} else {
				r.Desk.Take(m, l.Send)
			}
		}
	case r.Method != "" && (m.Method == "notifications/progress" || m.Method == "notifications/message"):
		// The stream belongs to this one call.
		r.Notify(sallyport.Notice{Method: m.Method, Params: m.Params})
	default:
		if !l.o.Room.Notice(m) {
			l.o.Heard(m)
		}
	}
	return m, false, nil
}
