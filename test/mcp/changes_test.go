package mcp

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/backend/upstream"
)

// An ear is a client's: what it was told.
type ear struct {
	mu      sync.Mutex
	lists   map[string]int
	updated []string
}

func (e *ear) options() *sdk.ClientOptions {
	e.lists = map[string]int{}
	note := func(what string) { e.mu.Lock(); e.lists[what]++; e.mu.Unlock() }
	return &sdk.ClientOptions{
		ToolListChangedHandler:     func(context.Context, *sdk.ToolListChangedRequest) { note("tools") },
		PromptListChangedHandler:   func(context.Context, *sdk.PromptListChangedRequest) { note("prompts") },
		ResourceListChangedHandler: func(context.Context, *sdk.ResourceListChangedRequest) { note("resources") },
		ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) {
			e.mu.Lock()
			e.updated = append(e.updated, r.Params.URI)
			e.mu.Unlock()
		},
	}
}

func (e *ear) heard(what string) int { e.mu.Lock(); defer e.mu.Unlock(); return e.lists[what] }
func (e *ear) updates() []string     { e.mu.Lock(); defer e.mu.Unlock(); return slices.Clone(e.updated) }

const twoServers = `
@id("ann") permit (principal == Agent::"default/ann", action, resource);
@id("alice") permit (principal == Agent::"default/alice", action, resource in Server::"b");
`

// FO-04: what a server adds is there within moments, told to those whose list it
// changes and to nobody else, and a burst is told once.
func TestFO04ChangesAreTold(t *testing.T) {
	t.Parallel()
	every(t, func(t *testing.T, version string, modern bool) {
		a, b := newShop(t, "a", modern), newShop(t, "b", modern)
		w := newWorld(t, setup{policies: twoServers, servers: []upstream.Config{a.config, b.config}}).whole()
		var heard, other ear
		ann := w.client("ann", "", version, heard.options())
		w.client("alice", "", version, other.options())
		w.eventually("both listen", func() bool { return w.hub.Listening() >= 2 }) // the streams open on the clients' own time
		w.mu.Lock()
		before := w.lists
		w.mu.Unlock()
		begun := time.Now()
		for i := range 50 {
			a.AddTool(&sdk.Tool{Name: fmt.Sprintf("new%d", i), InputSchema: map[string]any{"type": "object"}}, link)
		}
		a.RemoveTools("link")
		w.eventually("ann hears of the tools", func() bool { return heard.heard("tools") > 0 })
		w.eventually("all of them are there", func() bool {
			list, err := ann.ListTools(t.Context(), nil)
			return err == nil && len(list.Tools) == 51
		})
		if _, err := ann.CallTool(t.Context(), &sdk.CallToolParams{Name: "a__link"}); rpcCode(err) != -32602 {
			t.Errorf("the removed tool: %v", err)
		}
		a.AddPrompt(&sdk.Prompt{Name: "bye"}, greet)
		a.AddResource(&sdk.Resource{URI: "file:///new", Name: "new"}, a.give("a"))
		w.eventually("ann hears of prompts and resources", func() bool { return heard.heard("prompts") > 0 && heard.heard("resources") > 0 })
		w.mu.Lock()
		lists := w.lists - before
		w.mu.Unlock()
		if most := 3 + int(time.Since(begun)/(500*time.Millisecond)); lists > most || heard.heard("tools") > most { // two a second, however many changes
			t.Errorf("a burst led to %d lists, and %d notifications", lists, heard.heard("tools"))
		}
		if n := other.heard("tools") + other.heard("prompts") + other.heard("resources"); n != 0 {
			t.Errorf("alice, who sees nothing of it, was told %d times", n)
		}
	})
}

// A policy that changes changes lists, too.
func TestPolicyChangesAreTold(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		a := newShop(t, "a", true)
		w := newWorld(t, setup{policies: twoServers, servers: []upstream.Config{a.config}}).whole()
		var heard, other ear
		w.client("alice", "", version, heard.options())
		w.client("ann", "", version, other.options())
		w.eventually("both listen", func() bool { return w.hub.Listening() >= 2 })
		w.decide(twoServers + `@id("more") permit (principal == Agent::"default/alice", action == Action::"read", resource is Resource);`)
		w.eventually("alice hears of resources", func() bool { return heard.heard("resources") == 1 })
		if heard.heard("tools")+heard.heard("prompts")+other.heard("resources") != 0 {
			t.Errorf("%s: told too much: %v, %v", version, heard.lists, other.lists)
		}
	}
}

// FO-07, TO-07: updates carry the exposed address, and go to those who follow it
// and may read it.
func TestFO07UpdatesOfFollowedResources(t *testing.T) {
	t.Parallel()
	every(t, func(t *testing.T, version string, modern bool) {
		a, b := newShop(t, "a", modern), newShop(t, "b", modern)
		w := newWorld(t, setup{policies: twoServers, servers: []upstream.Config{a.config, b.config}}).whole()
		var heard, other ear
		ann, alice := w.client("ann", "", version, heard.options()), w.client("alice", "", version, other.options())
		follow := func(c *sdk.ClientSession, uri string) error {
			return c.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri})
		}
		if err := follow(ann, "sallyport:a/file:///readme"); err != nil {
			t.Fatal(err)
		}
		if err := follow(alice, "sallyport:b/file:///readme"); err != nil {
			t.Fatal(err)
		}
		if err := follow(alice, "sallyport:a/file:///readme"); version != "2026-07-28" && err == nil { // there it is left out of what is acknowledged
			t.Error("alice follows what she may not read")
		}
		update := func(s *shop) {
			_ = s.ResourceUpdated(context.Background(), &sdk.ResourceUpdatedNotificationParams{URI: "file:///readme"})
		}
		w.eventually("each hears of hers", func() bool {
			update(a)
			update(b)
			time.Sleep(50 * time.Millisecond)
			return len(heard.updates()) > 0 && len(other.updates()) > 0
		})
		for _, u := range heard.updates() {
			if u != "sallyport:a/file:///readme" {
				t.Errorf("ann was told of %s", u)
			}
		}
		for _, u := range other.updates() {
			if u != "sallyport:b/file:///readme" {
				t.Errorf("alice was told of %s", u)
			}
		}
		if err := ann.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: "sallyport:a/file:///readme"}); err != nil {
			t.Error(err)
		}
		heardOf := func() int { return len(heard.updates()) }
		n := w.settled(heardOf)
		update(a)
		if w.settled(heardOf) != n {
			t.Error("ann is still told")
		}
	})
}

// TO-09: who may not read a resource any more is not told of it either.
func TestTO09UpdatesEndWithThePolicy(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		a := newShop(t, "a", true)
		w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{a.config}}).whole()
		var heard ear
		c := w.client("ann", "", version, heard.options())
		if err := c.Subscribe(t.Context(), &sdk.SubscribeParams{URI: "sallyport:a/file:///readme"}); err != nil {
			t.Fatal(err)
		}
		w.eventually("ann is told", func() bool {
			w.hub.Updated("a", "file:///readme")
			time.Sleep(20 * time.Millisecond)
			return len(heard.updates()) > 0
		})
		w.flip(false)
		heardOf := func() int { return len(heard.updates()) }
		n := w.settled(heardOf)
		w.hub.Updated("a", "file:///readme")
		if got := w.settled(heardOf); got != n {
			t.Errorf("%s: told %d times more", version, got-n)
		}
	}
}
