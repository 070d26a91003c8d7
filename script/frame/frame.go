// Package frame reads what a program in a sandbox sends when it calls tools. The
// program is hostile: it may send anything, in any pieces, at any rate.
package frame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Bounds of one script.
const (
	MaxBytes = 1 << 20 // of one call
	MaxCalls = 500
	AtOnce   = 16 // calls that are not answered yet
)

// A Call is one that a program makes.
type Call struct {
	N    int // 1, 2, … in the order in which the program makes them
	Tool string
	Args json.RawMessage // of any shape: the path judges them
}

// A Reader reads the calls of one program. The zero value is ready for use.
type Reader struct {
	rest []byte
	last int
	err  error
}

// Read takes the next bytes and returns the calls that are whole by now. After an
// error there are none any more: the program does not keep to the protocol.
func (r *Reader) Read(b []byte) (calls []Call, err error) {
	for r.err == nil && len(b) > 0 {
		line, after, whole := bytes.Cut(b, []byte{'\n'})
		if len(r.rest)+len(line) > MaxBytes {
			r.err = fmt.Errorf("call %d has more than %d bytes", r.last+1, MaxBytes)
			break
		}
		r.rest, b = append(r.rest, line...), after
		if !whole {
			break
		}
		var c Call
		if c, r.err = r.parse(r.rest); r.err == nil {
			calls = append(calls, c)
		}
		r.rest = nil // what was returned refers to it
	}
	return calls, r.err
}

func (r *Reader) parse(line []byte) (Call, error) {
	var in struct {
		N    *int            `json:"n"`
		Tool *string         `json:"tool"`
		Args json.RawMessage `json:"args"`
	}
	next := r.last + 1
	if !utf8.Valid(line) || json.Unmarshal(line, &in) != nil || in.N == nil || in.Tool == nil {
		return Call{}, fmt.Errorf("call %d cannot be read", next)
	}
	switch {
	case *in.N != next:
		return Call{}, fmt.Errorf("call %d came where call %d was due", *in.N, next)
	case next > MaxCalls:
		return Call{}, fmt.Errorf("there are more than %d calls", MaxCalls)
	}
	r.last = next
	return Call{next, *in.Tool, in.Args}, nil
}
