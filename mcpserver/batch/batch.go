// Package batch takes several messages apart that came in one body, and puts the
// answers together. Only the revision 2025-03-26 has such.
package batch

import (
	"bytes"
	"encoding/json"
	"net/http"

	"sallyport.dev/sallyport/wire"
)

const (
	// Most is how many messages one body may hold.
	Most = 100
	// Enough is how many bytes of answers there may be before the next is run.
	Enough = 8 << 20
)

// Is reports whether a body is a batch, of JSON or not.
func Is(body []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte{'['}) }

// Split returns the messages of a batch, or the error to answer with.
func Split(body []byte) ([]json.RawMessage, *wire.Error) {
	if err := wire.Validate(body); err != nil {
		return nil, &wire.Error{Code: wire.CodeParse, Message: "not valid JSON: " + err.Error()}
	}
	var all []json.RawMessage
	for v := range wire.Elements(bytes.TrimSpace(body)) {
		if all = append(all, v); len(all) > Most {
			return nil, &wire.Error{Code: wire.CodeInvalidRequest, Message: "invalid request: a batch holds at most 100 messages"}
		}
	}
	if len(all) == 0 {
		return nil, &wire.Error{Code: wire.CodeInvalidRequest, Message: "invalid request: the batch is empty"}
	}
	return all, nil
}

// An Answer takes what one message of a batch is answered with. It is an
// http.ResponseWriter whose status and headers nobody sees.
type Answer struct {
	header http.Header
	Body   []byte // empty for a message that has no answer
}

// Header returns headers that go nowhere.
func (a *Answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader does nothing: the batch has a status of its own.
func (a *Answer) WriteHeader(int) {}

func (a *Answer) Write(b []byte) (int, error) {
	a.Body = append(a.Body, b...)
	return len(b), nil
}
