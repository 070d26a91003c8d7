package cursor_test

import (
	"fmt"
	"testing"

	"sallyport.dev/sallyport/mcpserver/cursor"
)

func list(n int, of ...string) cursor.List {
	return cursor.List{
		Of: of, Len: n,
		Name: func(i int) string { return fmt.Sprintf("tool-%03d", i) }, State: func(i int) string { return "same" },
	}
}

// A cursor is good for the list that it was made for, as it was then.
func TestCursorIsOfOneList(t *testing.T) {
	l := list(10, "tools", "ann")
	at := l.After(3)
	if next, ok := l.Find(at); !ok || next != 4 {
		t.Fatalf("its own list: %d, %v", next, ok)
	}
	other := l
	other.State = func(i int) string { return fmt.Sprint("changed ", i == 7) }
	for name, l := range map[string]cursor.List{
		"another caller": list(10, "tools", "bob"), "another list": list(10, "prompts", "ann"), "more items": list(11, "tools", "ann"),
		"an item changed": other, "parts moved": list(10, "tool", "sann"),
	} {
		if _, ok := l.Find(at); ok {
			t.Errorf("%s takes the cursor", name)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add(list(10, "tools").After(3))
	f.Fuzz(func(t *testing.T, s string) {
		l := list(10, "tools")
		if next, ok := l.Find(s); ok && l.After(next-1) != s {
			t.Fatalf("%q is taken, and is not ours", s)
		}
	})
}
