package sse

import (
	"io"
	"time"
)

const (
	// endOfStream is how long the end of a stream is waited for after the answer.
	// It comes with it, as a rule; a server that keeps the stream open costs this.
	endOfStream = 2 * time.Millisecond
	drainBytes  = 4 << 10
)

// Finish lets the end of a stream pass by, so that its connection can be used
// again: once the call is over, its context ends the connection.
func Finish(body io.ReadCloser) {
	t := time.AfterFunc(endOfStream, func() { _ = body.Close() })
	defer t.Stop()
	_, _ = io.CopyN(io.Discard, body, drainBytes)
	_ = body.Close()
}
