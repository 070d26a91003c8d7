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
	"sallyport.dev/sallyport/wire"
)

const (
	maxResumes = 20 // of one answer
	drainBytes = 4 << 10
)

// stream reads an answer that comes as server-sent events. A legacy server may
// hang up and go on when asked for what came after the last event.
func (l *webLink) stream(ctx context.Context, resp *http.Response, r request) (wire.Message, error) {
	lastID, resumes := "", 0
	for {
		events := wire.NewEventReader(resp.Body, l.se.s.o.MaxMessage)
		m, found, err := l.events(events, r)
		if found {
			finish(resp.Body)
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
		resumes++
		wait := max(events.Retry(), time.Second/10)
		if !pause(ctx, min(wait, maxBackOff)) {
			return wire.Message{}, ctx.Err()
		}
		if resp, err = l.resume(ctx, lastID); err != nil {
			return wire.Message{}, err
		}
	}
}

// endOfStream is how long the end of a stream is waited for after the answer.
// It comes with it, as a rule; a server that keeps the stream open costs this.
const endOfStream = 2 * time.Millisecond

// finish lets the end of a stream pass by, so that its connection can be used
// again: once the call is over, its context ends the connection.
func finish(body io.ReadCloser) {
	t := time.AfterFunc(endOfStream, func() { _ = body.Close() })
	defer t.Stop()
	_, _ = io.CopyN(io.Discard, body, drainBytes)
	_ = body.Close()
}

func (l *webLink) resume(ctx context.Context, lastID string) (*http.Response, error) {
	req, err := l.newRequest(ctx, http.MethodGet, nil, request{header: map[string]string{
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
		return nil, fmt.Errorf("upstream_disconnected: the stream ended before the answer and cannot be resumed (HTTP status %d)", resp.StatusCode)
	}
	return resp, nil
}

// events reads messages up to the answer. found is false where the stream
// ended, with err, before it.
func (l *webLink) events(events *wire.EventReader, r request) (m wire.Message, found bool, err error) {
	for {
		e, err := events.Next()
		if err != nil {
			if errors.Is(err, wire.ErrEventTooLarge) {
				return m, true, errTooLarge
			}
			return m, false, err
		}
		if e.Name != "message" || len(e.Data) == 0 {
			continue
		}
		data := append([]byte(nil), e.Data...) // the reader uses its own again
		m, err := wire.ParseMessage(data)
		switch {
		case err != nil:
			if id := wire.Member(data, "id"); string(id) == string(r.rawID()) {
				return m, true, fmt.Errorf("%w: %w", errMalformed, err)
			}
		case m.IsResponse():
			if m.ID == nil || string(m.ID) == string(r.rawID()) {
				return m, true, nil
			}
		case m.IsRequest():
			if l.se.era == eraLegacy { // modern servers must not ask
				reply, _ := wire.ParseMessage(answerPeer(m))
				l.aside(reply)
			}
		case m.Method == "notifications/progress" || m.Method == "notifications/message":
			// The stream belongs to this one call.
			r.notify(sallyport.Notice{Method: m.Method, Params: m.Params})
		default:
			l.se.s.heard(m)
		}
	}
}
