package mcp

import (
	"net"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/catalog/profile"
)

// FO-08: a server that cannot be reached takes nothing from the others, and is
// not passed over in silence.
func TestSilentServers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := newShop(t, "a", true)
	w := newWorld(t, setup{
		servers:  []upstream.Config{a.config, {Name: "mute", URL: "http://" + l.Addr().String()}},
		profiles: map[string]profile.Profile{"mute": {Names: []string{"mute__*"}}, "a": {Names: []string{"a__*"}}},
	})
	w.eventually("a tells what it has", func() bool { return len(w.behind.Silent()) == 1 })
	list, err := w.client("ann", "", "2026-07-28", nil).ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 3 || list.Meta["dev.sallyport/incomplete"] != true {
		t.Errorf("%+v, %v", list, err)
	}
	list, err = w.client("ann", "/a", "2026-07-28", nil).ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 3 || list.Meta["dev.sallyport/incomplete"] != nil {
		t.Errorf("a profile without it: %+v, %v", list, err)
	}
	for _, list := range []func(c *sdk.ClientSession) error{
		func(c *sdk.ClientSession) error { _, err := c.ListResources(t.Context(), nil); return err },
		func(c *sdk.ClientSession) error { _, err := c.ListPrompts(t.Context(), nil); return err },
		func(c *sdk.ClientSession) error { _, err := c.ListTools(t.Context(), nil); return err },
	} {
		if err := list(w.client("ann", "/mute", "2026-07-28", nil)); err == nil {
			t.Error("nothing is known, and the list is empty")
		}
	}
}
