package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/sse"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/wire"
)

const maxResumes = 20 // of one answer

// stream reads an answer that comes as server-sent events. A legacy server may
// hang up and go on when asked for what came after the last event.
func (l *webLink) stream(ctx context.Context, resp *http.Response, r link.Request) (wire.Message, error) {
	lastID, resumes := "", 0
	for {
		events := wire.NewEventReader(resp.Body, l.se.s.o.MaxMessage)
		m, found, err := l.events(events, r)
		if found {
			sse.Finish(resp.Body)
			return m, err
		}
		_ = resp.Body.Close()
		if events.LastID() != "" {
			lastID = events.LastID()
		}
		if lastID == "" || l.se.era != eraLegacy || resumes >= maxResumes || ctx.Err() != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("upstream_disconnected: the stream ended before the answer")
			}
			return wire.Message{}, err
		}
		for resp = nil; resp == nil; {
			resumes++
			wait := max(events.Retry(), time.Second/10)
			if !pause.For(ctx, min(wait, maxBackOff)) {
				return wire.Message{}, ctx.Err()
			}
			if resp, err = l.resume(ctx, lastID); err != nil && (resumes >= maxResumes || !status.Passes(err)) { //nolint:bodyclose // the next turn reads and closes it
				return wire.Message{}, err
			}
		}
	}
}

func (l *webLink) resume(ctx context.Context, lastID string) (*http.Response, error) {
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
func (l *webLink) events(events *wire.EventReader, r link.Request) (m wire.Message, found bool, err error) {
	for {
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
		data := append([]byte(nil), e.Data...) // the reader uses its own again
		for part := range wire.Each(data) {
			if m, found, err = l.event(part, r); found {
				return m, true, err
			}
		}
	}
}

// event takes one message in; found is true for the answer.
func (l *webLink) event(data []byte, r link.Request) (m wire.Message, found bool, err error) {
	m, err = wire.ParseMessage(data)
	switch {
	case err != nil:
		id := wire.Member(data, "id")
		return m, string(id) == string(r.RawID()), fmt.Errorf("%w: %w", link.ErrMalformed, err)
	case m.IsResponse():
		return m, m.ID == nil || string(m.ID) == string(r.RawID()), nil
	case m.IsRequest():
		if l.se.era == eraLegacy { // modern servers must not ask
			if r.Method == "" { // the standing stream, which is nobody's
				l.se.room.Put(m, l.Send)
			} else {
				r.Desk.Take(m, l.Send)
			}
		}
	case r.Method != "" && (m.Method == "notifications/progress" || m.Method == "notifications/message"):
		// The stream belongs to this one call.
		r.Notify(sallyport.Notice{Method: m.Method, Params: m.Params})
	default:
		if !l.se.room.Notice(m) {
			l.se.s.heard(m)
		}
	}
	return m, false, nil
}
