// Package refusal writes for clients why the gateway refused something.
package refusal

import (
	"strconv"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// Seconds rounds up: a client that waits that long has waited long enough.
func Seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// Append appends the members that tell a refusal, in a fixed order.
func Append(b []byte, e *sallyport.Error, message bool) []byte {
	b = wire.AppendString(append(b, `"code":`...), string(e.Code))
	b = wire.AppendString(append(b, `,"step":`...), string(e.Step))
	if message {
		b = wire.AppendString(append(b, `,"message":`...), e.Message)
	}
	b = wire.AppendString(append(b, `,"hint":`...), e.Hint)
	if e.Ticket != "" {
		b = wire.AppendString(append(b, `,"ticket":`...), e.Ticket)
	}
	if e.RetryAfter > 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), Seconds(e.RetryAfter), 10)
	}
	return b
}

// Result is a refusal as a tool result, for the agent to read.
func Result(e *sallyport.Error) []byte {
	text := string(e.Code) + " (at " + string(e.Step) + "): " + e.Message
	if e.Ticket != "" {
		text += "\nTicket: " + e.Ticket
	}
	if e.RetryAfter > 0 {
		text += "\nRetry after: " + strconv.FormatInt(Seconds(e.RetryAfter), 10) + " s"
	}
	if e.Hint != "" {
		text += "\nHint: " + e.Hint
	}
	b := wire.AppendString([]byte(`{"content":[{"type":"text","text":`), text)
	b = Append(append(b, `}],"structuredContent":{`...), e, true)
	return append(b, `},"isError":true}`...)
}
