package mcp

import (
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/backend/upstream"
)

// as makes a gateway an upstream of another.
func (w *world) as(name string) upstream.Config {
	return upstream.Config{Name: name, URL: w.url + "/mcp", Header: http.Header{"Authorization": {"Bearer ann"}}}
}

func (w *world) statusOf(name string) upstream.Status {
	for _, s := range w.behind.Status() {
		if s.Name == name {
			return s
		}
	}
	return upstream.Status{}
}

// FO-18: a chain of gateways works; a cycle of them is found by whoever would close
// it, and takes nothing else along.
func TestFO18LoopsAreFound(t *testing.T) {
	shop := newShop(t, "shop", true)
	inner := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{shop.config}}).whole()
	outer := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{inner.as("inner")}}).whole()
	c := outer.client("ann", "", "2025-11-25", nil)
	const address = "sallyport:inner/sallyport:shop/file:///readme"
	if part, err := read(t, c, address); err != nil || part.URI != address {
		t.Errorf("through two gateways: %+v, %v", part, err)
	}
	if res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "inner__shop__link"}); err != nil || res.Content[0].(*sdk.ResourceLink).URI != address {
		t.Errorf("%+v, %v", res, err)
	}
	for name, loop := range map[string]upstream.Config{"itself": inner.as("itself"), "back": outer.as("back")} {
		if err := inner.behind.Add(loop); err != nil {
			t.Fatal(err)
		}
		inner.eventually("the loop is found", func() bool { return inner.statusOf(name).Error != "" })
		if st := inner.statusOf(name); st.State == upstream.StateReady || !strings.Contains(st.Error, "leads back to this gateway") {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if _, err := read(t, c, address); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
