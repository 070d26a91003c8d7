// Package cursor makes the cursors of lists that come in pages. A cursor names
// the last item of a page, with a checksum that tells one of ours, for this
// list, from anything else. It gives no rights and holds no state: any gateway
// of a group can go on with it.
package cursor

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

const sumSize = 12

// A List is what a cursor is good for: one list, as one caller saw it.
type List struct {
	Of   []string // which list, of which profile, for whom, in which session
	Name func(i int) string
	Len  int

	// State stands for the content of an item: a list that has changed since is
	// another one, of which no part would follow.
	State func(i int) string
}

// After returns the cursor for what follows the item i.
func (l List) After(i int) string {
	name := l.Name(i)
	return base64.RawURLEncoding.EncodeToString(append(l.sum(name), name...))
}

// Find returns the place of the item that a cursor continues with. ok is false
// for a cursor that was not made for this list as it is now.
func (l List) Find(cursor string) (next int, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) <= sumSize {
		return 0, false
	}
	name := string(b[sumSize:])
	if string(l.sum(name)) != string(b[:sumSize]) {
		return 0, false
	}
	for i := range l.Len {
		if l.Name(i) == name {
			return i + 1, true
		}
	}
	return 0, false
}

func (l List) sum(name string) []byte {
	h := sha256.New()
	put := func(s string) {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(s)))) // a hash takes everything
		_, _ = h.Write([]byte(s))
	}
	put("sallyport cursor 2")
	for _, s := range l.Of {
		put(s)
	}
	for i := range l.Len {
		put(l.Name(i))
		put(l.State(i))
	}
	put(name)
	return h.Sum(nil)[:sumSize]
}
