// Package page fetches the lists that a server has, page by page and within
// bounds: a list without end must not keep the gateway, or fill its memory.
package page

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"sallyport.dev/sallyport/wire"
)

// Bounds of one list.
const (
	maxPages = 100
	maxItems = 20_000
	maxBytes = 64 << 20
	maxTwice = 10
)

// ErrNoList is that of an answer that has no list where one is due.
var ErrNoList = errors.New("it has no list")

// An Ask sends one request of the gateway's own.
type Ask func(ctx context.Context, method string, params json.RawMessage) (wire.Message, error)

// A List is what a server has of one kind.
type List struct {
	Items    []json.RawMessage
	Degraded string   // "pagination" or "size" if the list did not come to an end
	Twice    []string // keys of different items, of which the first is kept
}

// All fetches a list: member of the results of method. Of items with the same
// key the first is kept; those without one are kept too, for others to say what
// is wrong with them. A server that does not know the method has none. With an
// error, what came before it is still there.
func All(ctx context.Context, ask Ask, method, member, key string) (l List, err error) {
	seen, cursors, size := map[string]string{}, map[string]bool{}, 0
	params := json.RawMessage(nil)
	for page := range maxPages {
		m, err := ask(ctx, method, params)
		if err == nil && m.Error != nil {
			if err = m.Error; m.Error.Code == wire.CodeMethodNotFound && page == 0 {
				return l, nil
			}
		}
		list := wire.Member(m.Result, member)
		if err == nil && (len(list) == 0 || list[0] != '[') {
			err = ErrNoList
		}
		if err != nil {
			if l.Degraded = ""; page > 0 {
				l.Degraded = "pagination"
			}
			if page > 0 && ctx.Err() != nil {
				err = nil
			}
			return l, err
		}
		for raw := range wire.Elements(list) {
			size += len(raw)
			if len(l.Items) >= maxItems || size > maxBytes {
				l.Degraded = "size"
				return l, nil
			}
			k := keyOf(raw, key)
			first, known := seen[k]
			switch {
			case !known:
				seen[k] = string(raw)
				l.Items = append(l.Items, raw)
			case first != string(raw) && len(l.Twice) < maxTwice && !slices.Contains(l.Twice, k):
				l.Twice = append(l.Twice, k)
			}
		}
		cursor := wire.Member(m.Result, "nextCursor")
		if cursor == nil || wire.IsNull(cursor) {
			return l, nil
		}
		text, ok := wire.String(cursor)
		if !ok || cursors[text] {
			break
		}
		cursors[text] = true
		params = append(wire.AppendString([]byte(`{"cursor":`), text), '}')
	}
	l.Degraded = "pagination"
	return l, nil
}

// Echoes reports whether a list of tools has in it what a gateway shows of that same
// list: a tool, and once more as SERVER__TOOL, behind whatever the server itself puts
// before names. The server then leads back to the gateway that asks, through something
// that does not say so.
func Echoes(items []json.RawMessage, server string) bool {
	by, plain := make(map[string]json.RawMessage, len(items)), make(map[string]string, len(items))
	for _, raw := range items {
		name := keyOf(raw, "name")
		by[name], plain[spelled(name)] = raw, name
	}
	for name, echo := range by {
		before, inner, ok := strings.Cut(name, server+"__")
		if by[inner] == nil {
			inner = plain[unmarked(inner)]
		}
		if first := by[inner]; ok && inner != "" && first != nil && strings.HasPrefix(inner, before) && same(first, echo) {
			return true
		}
	}
	return false
}

// spelled is a name in the letters that gateways show.
func spelled(name string) string {
	b := []byte(name)
	for i, c := range b {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			b[i] = '_'
		}
	}
	return string(b)
}

// unmarked is a name without the mark at its end that says that it is not as it was.
func unmarked(name string) string {
	const mark = len("--") + 12
	if i := len(name) - mark; i > 0 && strings.HasPrefix(name[i:], "--") {
		return name[:i]
	}
	return name
}

func same(a, b json.RawMessage) bool {
	for _, member := range []string{"description", "inputSchema", "outputSchema"} {
		if string(wire.Member(a, member)) != string(wire.Member(b, member)) {
			return false
		}
	}
	return true
}

func keyOf(raw json.RawMessage, key string) string {
	if name, ok := wire.String(wire.Member(raw, key)); ok {
		return name
	}
	return "\x00" + string(raw[:min(len(raw), 256)])
}
