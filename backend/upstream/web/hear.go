package web

import (
	"context"
	"io"
	"mime"
	"net/http"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/wire"
)

// earTime is how long the first call of a session waits for the standing stream,
// on which some servers ask; others say nothing there before they have something to say.
const earTime = 500 * time.Millisecond

// AwaitEar waits until the session hears, if it is new.
func (l *Link) AwaitEar(ctx context.Context) {
	left := earTime - time.Since(l.begun)
	if !l.InSession() || left <= 0 {
		return
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-l.hears:
	case <-t.C:
	case <-ctx.Done():
	}
}

// Hear reads the standing stream of a legacy session, from where it was lost.
// link.ErrNoStream is that there is no such stream.
func (l *Link) Hear(ctx context.Context) error {
	header := map[string]string{"Accept": wire.TypeSSE}
	if l.last != "" {
		header[wire.HeaderLastEventID] = l.last
	}
	req, err := l.newRequest(ctx, http.MethodGet, nil, link.Request{Header: header})
	if err != nil {
		return err
	}
	resp, err := l.client.Do(req)
	l.heard.Do(func() { close(l.hears) })
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	refused := &status.Error{Code: resp.StatusCode, Text: "the stream"}
	switch {
	case resp.StatusCode == http.StatusOK && kind == wire.TypeSSE:
	case l.stands && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest):
		if l.last != "" { // it does not resume
			l.last = ""
			return io.EOF
		}
		l.End(l.lost()) // where there was a stream there is none: it does not know the session
		return link.ErrNoStream
	case resp.StatusCode/100 == 2 || resp.StatusCode/100 == 4 && !refused.Passing():
		return link.ErrNoStream // 405 is what the protocol says
	default:
		return refused
	}
	l.stands = true
	nobody := link.Request{ID: l.o.ID(), Notify: func(sallyport.Notice) {}}
	events := wire.NewEventReader(resp.Body, l.o.Most)
	_, _, err = l.events(events, nobody)
	if id := events.LastID(); id != "" {
		l.last = id
	}
	pause.For(ctx, min(max(events.Retry(), 0), maxWait)) // as it wants
	return err
}
