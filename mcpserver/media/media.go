// Package media reads which media types a client sends and can read.
package media

import (
	"mime"
	"strings"

	"sallyport.dev/sallyport/wire"
)

// Accepted says which answers a client can read.
type Accepted struct{ JSON, Stream bool }

// IsJSON reports whether a body is JSON in UTF-8.
func IsJSON(contentType string) bool {
	if contentType == wire.TypeJSON {
		return true
	}
	kind, params, err := mime.ParseMediaType(contentType)
	charset := params["charset"]
	return err == nil && kind == wire.TypeJSON && (charset == "" || strings.EqualFold(charset, "utf-8"))
}

// ParseAccept reads the values of Accept.
func ParseAccept(values []string) (a Accepted) {
	if len(values) == 1 && values[0] == "application/json, text/event-stream" {
		return Accepted{JSON: true, Stream: true}
	}
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			kind, params, err := mime.ParseMediaType(part)
			if err != nil || refused(params["q"]) {
				continue
			}
			a.JSON = a.JSON || kind == wire.TypeJSON || kind == "application/*" || kind == "*/*"
			a.Stream = a.Stream || kind == wire.TypeSSE || kind == "text/*" || kind == "*/*"
		}
	}
	return a
}

// refused reports whether a weight is nothing: 0, 0. or 0.000.
func refused(q string) bool { return q != "" && q[0] == '0' && strings.Trim(q, "0.") == "" }
