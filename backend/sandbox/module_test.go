package sandbox_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/image/module"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/wasm"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

// noted keeps what modules reach a tier.
type noted struct {
	tier.Tier
	modules []tier.Module
}

func (n *noted) Run(ctx context.Context, r tier.Request) (tier.Result, error) {
	n.modules = append(n.modules, *r.Module)
	return n.Tier.Run(ctx, r)
}

const greet = `package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	var in struct{ Name string }
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(map[string]string{"greeting": "Hello " + in.Name, "as": os.Args[0]})
}
`

// A tool of language wasm is called like any other: its arguments are on stdin, what
// it prints is the result. A module crosses to the host once, and only the one that
// was pinned.
func TestWasmTool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "compiled") // in which there is nothing yet
	h, _ := wasmtest.Open(t, func(c *wasm.Config) { c.Dir = dir })
	host := &noted{Tier: h}
	open := func() *sandbox.Backend {
		return playing(t, map[string]tier.Tier{sallyport.TierWasm: host}, func(o *sandbox.Options) { o.Modules = module.NewStore(t.TempDir()) })
	}
	code := wasmtest.Go(t, greet)
	file := filepath.Join(t.TempDir(), "greet.wasm")
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(code)
	job := sallyport.Job{
		Tool: sallyport.Tool{
			Name: "greet", Code: &sallyport.Script{Language: "wasm", Source: "sha256:" + wasmtest.Digest(code), File: file},
			OutputSchema: json.RawMessage(`{"type":"object"}`), Manifest: sallyport.Manifest{Trust: "light"},
		},
		Args: json.RawMessage(`{"name":"Ada"}`), Tier: sallyport.TierWasm, Limits: sallyport.DefaultLimits(), Notify: func(sallyport.Notice) {},
	}
	b := open()
	for range 2 {
		out, err := b.Run(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		var r struct{ StructuredContent map[string]string }
		if err := json.Unmarshal(out.Content, &r); err != nil || out.IsError || out.Receipt.Tier != "wasm" || r.StructuredContent["greeting"] != "Hello Ada" || r.StructuredContent["as"] != "greet.wasm" {
			t.Errorf("%s, %v", out.Content, err)
		}
	}
	if m := host.modules; len(m) != 3 || len(m[0].Code) != 0 || m[0].Digest == "" || len(m[1].Code) != len(code) || len(m[2].Code) != 0 {
		t.Errorf("the host was sent %d modules", len(m))
	}
	write(code[:100])
	if _, err := open().Run(t.Context(), job); sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), "greet.wasm") || len(host.modules) != 3 {
		t.Errorf("another module ran: %v", err)
	}
}
