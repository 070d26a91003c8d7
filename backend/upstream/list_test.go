package upstream_test

import (
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/await"
)

// FO-06: of a server whose second page always fails, the first is kept as a part, which
// its status says; and a part takes no whole list's place.
func TestFO06_LaterPageAlwaysFails(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "page-fails"))
	await.That(t, "a part is listed", func() bool {
		st := status(t, b, "s")
		return st.Tools == 1 && st.Degraded == "pagination" && strings.Contains(strings.Join(st.Warnings, " "), "broken page")
	})
	for range 2 {
		if l, err := b.Tools(t.Context(), "s"); err != nil || len(l.Tools) != 1 || l.Degraded == "" {
			t.Errorf("%+v, %v", l, err)
		}
	}
	b = open(t, options(), server("s", "page-fails-later"))
	await.That(t, "all is listed", func() bool { st := status(t, b, "s"); return st.Tools == 2 && st.Degraded == "" })
	if _, err := b.Tools(t.Context(), "s"); err == nil || !strings.Contains(err.Error(), "broken page") {
		t.Errorf("%v", err)
	}
	if st := status(t, b, "s"); st.Tools != 2 || !strings.Contains(st.Error, "broken page") {
		t.Errorf("a part took the place of the whole: %+v", st)
	}
}

// Of two tools with one name the first is kept, and the status says that there is another.
func TestEqualNamesAreTold(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "twins"))
	await.That(t, "it is listed", func() bool { return status(t, b, "s").Tools == 1 })
	if st := status(t, b, "s"); len(st.Warnings) != 1 || !strings.Contains(st.Warnings[0], `"echo" the first is kept`) {
		t.Errorf("%v", st.Warnings)
	}
}

func TestFO06_CursorsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]struct {
		tools    int
		degraded string
	}{
		"same-cursor": {1, "pagination"}, "cycle": {3, "pagination"}, "endless-pages": {0, "pagination"},
		"empty-cursor": {2, "pagination"}, "slow-pages": {1, "pagination"}, "legacy": {1, ""},
	} {
		o := options()
		if mode == "slow-pages" {
			o.Listing = 2 * time.Second
		}
		b := open(t, o, server("s", mode))
		await.That(t, mode+" is listed", func() bool {
			st := status(t, b, "s")
			return st.Degraded == want.degraded && st.Tools == want.tools
		})
		if mode == "slow-pages" {
			continue // it hangs from its second page on
		}
		l, err := b.Tools(t.Context(), "s")
		if err != nil || l.Degraded != want.degraded {
			t.Errorf("%s: %d tools, degraded %q, %v; want %+v", mode, len(l.Tools), l.Degraded, err, want)
		}
		if l.Instructions != "Be careful." {
			t.Errorf("%s: instructions %q", mode, l.Instructions)
		}
	}
}

func TestListChangedIsFollowed(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "restless"))
	seen := map[string]bool{}
	await.That(t, "three different lists", func() bool {
		l, err := b.Tools(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		seen[string(l.Tools[0])] = true
		return len(seen) >= 3
	})
}
