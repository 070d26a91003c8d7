package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"sallyport.dev/sallyport/backend/upstream/page"
	"sallyport.dev/sallyport/wire"
)

// paged answers each request with what the n-th page is, and counts them.
func paged(pages *int, result func(n int, cursor string) string) page.Ask {
	return func(_ context.Context, method string, params json.RawMessage) (wire.Message, error) {
		*pages++
		cursor, _ := wire.String(wire.Member(params, "cursor"))
		return wire.Message{Result: json.RawMessage(result(*pages, cursor))}, nil
	}
}

// FO-05: a list is all of its pages, of whichever kind.
func TestFO05AllPages(t *testing.T) {
	for method, names := range map[string][2]string{
		"tools/list": {"tools", "name"}, "resources/list": {"resources", "uri"}, "resources/templates/list": {"resourceTemplates", "uriTemplate"}, "prompts/list": {"prompts", "name"},
	} {
		pages := 0
		l, err := page.All(t.Context(), paged(&pages, func(n int, cursor string) string {
			if want := map[int]string{1: "", 2: "p1", 3: "p2", 4: "p3"}[n]; cursor != want {
				t.Errorf("page %d is asked for by %q", n, cursor)
			}
			list := ""
			for i := range 25 {
				list += fmt.Sprintf(`,{"%s":"%d"}`, names[1], 25*n+i)
			}
			next := fmt.Sprintf(`,"nextCursor":"p%d"`, n)
			if n == 4 {
				next = ""
			}
			return fmt.Sprintf(`{"%s":[%s]%s}`, names[0], list[1:], next)
		}), method, names[0], names[1])
		if err != nil || l.Degraded != "" || len(l.Items) != 100 || l.Twice != nil || pages != 4 {
			t.Errorf("%s: %d items on %d pages, %q, %v", method, len(l.Items), pages, l.Degraded, err)
		}
	}
}

// FO-06: a list without end ends, with what is in it once.
func TestFO06PagesWithoutEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		cursor func(n int) string
		most   int // pages
	}{
		"the same cursor": {func(int) string { return "x" }, 2}, "a cycle": {func(n int) string { return fmt.Sprint(n % 2) }, 3},
		"ever new ones": {func(n int) string { return fmt.Sprint(n) }, 100}, "empty ones": {func(int) string { return "" }, 2},
	} {
		pages := 0
		l, err := page.All(t.Context(), paged(&pages, func(n int, _ string) string {
			return fmt.Sprintf(`{"prompts":[{"name":"a"},{"odd":1}],"nextCursor":"%s"}`, tt.cursor(n))
		}), "prompts/list", "prompts", "name")
		if err != nil || l.Degraded != "pagination" || len(l.Items) != 2 || l.Twice != nil || pages > tt.most {
			t.Errorf("%s: %d items on %d pages, %q, %v", name, len(l.Items), pages, l.Degraded, err)
		}
	}
}

// FO-06: what came before a page that fails is told, with the error.
func TestFO06LaterPageFails(t *testing.T) {
	ask := func(_ context.Context, _ string, params json.RawMessage) (wire.Message, error) {
		if params != nil {
			return wire.Message{Error: &wire.Error{Code: wire.CodeInternal, Message: "no"}}, nil
		}
		return wire.Message{Result: json.RawMessage(`{"tools":[{"name":"a"}],"nextCursor":"2"}`)}, nil
	}
	if l, err := page.All(t.Context(), ask, "tools/list", "tools", "name"); err == nil || l.Degraded != "pagination" || len(l.Items) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}

// Of two different things with one name the first is kept, and it is told.
func TestEqualNames(t *testing.T) {
	pages := 0
	l, err := page.All(t.Context(), paged(&pages, func(int, string) string {
		return `{"tools":[{"name":"a","x":1},{"name":"b"},{"name":"a","x":2},{"name":"b"},{"name":"a","x":3}]}`
	}), "tools/list", "tools", "name")
	if err != nil || len(l.Items) != 2 || string(l.Items[0]) != `{"name":"a","x":1}` || fmt.Sprint(l.Twice) != "[a]" {
		t.Errorf("%s, %v, %v", l.Items, l.Twice, err)
	}
}

// FO-18: what leads back is known by its names, whatever it puts before them itself.
func TestFO18Echoes(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  bool
	}{
		{[]string{"a", "b", "back__c", "sp_d"}, false},
		{[]string{"x", "back__x"}, true},
		{[]string{"sp_shop__x", "sp_back__sp_shop__x"}, true},
		{[]string{"sp.x", "sp.back__sp_x--abcdefghijkl"}, true},
		{[]string{"sp/é", "sp/back__sp___--abcdefghijkl"}, true},
		{[]string{"x", "sp_back__x"}, false}, // not behind what it puts before others
		{[]string{"back__", ""}, false},
	} {
		var items []json.RawMessage
		for _, name := range c.names {
			items = append(items, fmt.Appendf(nil, `{"name":%q,"description":"d","inputSchema":{}}`, name))
		}
		if got := page.Echoes(items, "back"); got != c.want {
			t.Errorf("%q: %t", c.names, got)
		}
	}
	if page.Echoes([]json.RawMessage{[]byte(`{"name":"x","description":"a"}`), []byte(`{"name":"back__x","description":"b"}`)}, "back") {
		t.Error("two tools that differ")
	}
}
