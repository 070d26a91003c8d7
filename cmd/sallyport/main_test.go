package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sallyport.dev/sallyport/catalog/lint"
	"sallyport.dev/sallyport/tier/realtest"
)

// envBreak names the protection that the program takes away, for the tests of
// the demo; see notices_test.go.
const envBreak = "SALLYPORT_TEST_BREAK"

// TestMain lets this test binary be the program: run under the name sallyport,
// it is sallyport; under the name toolserver, an upstream.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "sallyport":
		os.Exit((&program{alter: breaks[os.Getenv(envBreak)]}).run(os.Args[1:]))
	case "toolserver":
		os.Exit(toolServer(os.Args[1]))
	}
	code := m.Run()
	if installed.dir != "" {
		os.RemoveAll(installed.dir)
	}
	os.Exit(code)
}

// installed is a folder that every user may read, with the programs in it.
var installed struct {
	once sync.Once
	dir  string
}

// install returns the folder bin with sallyport (this test binary) and the
// programs that it needs beside it: those of $SALLYPORT_BIN, or freshly built.
func install(t *testing.T) (bin string) {
	t.Helper()
	installed.once.Do(func() {
		dir, err := os.MkdirTemp("", "sallyport-test-")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		bin := filepath.Join(dir, "bin")
		if err := os.Mkdir(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		copySelf(t, filepath.Join(bin, "sallyport"))
		copySelf(t, filepath.Join(bin, "toolserver"))
		programs := os.Getenv("SALLYPORT_BIN")
		if programs == "" {
			programs = realtest.Programs(t)
		}
		for _, p := range []string{"sallyport-sandboxd", "sallyport-runsc", "sallyport-init", "sallyport-cage", "sallyport-guest", "sallyport-wasm"} {
			if err := os.Symlink(filepath.Join(programs, p), filepath.Join(bin, p)); err != nil {
				t.Fatal(err)
			}
		}
		installed.dir = dir
	})
	if installed.dir == "" {
		t.Fatal("the programs could not be installed")
	}
	return filepath.Join(installed.dir, "bin")
}

func copySelf(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(self, to); err == nil {
		return
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
}

// toolServer is an MCP server on stdio with one tool, which says hello and is
// defined by a file.
func toolServer(definition string) int {
	tool, err := os.ReadFile(definition)
	if err != nil {
		return 1
	}
	results := map[string]string{
		"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"changing","version":"1"}}`,
		"tools/list": `{"tools":[` + string(bytes.TrimSpace(tool)) + `]}`,
		"tools/call": `{"content":[{"type":"text","text":"hello"}]}`,
		"ping":       `{}`,
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var req struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(in.Bytes(), &req) != nil || req.ID == nil {
			continue
		}
		if r, ok := results[req.Method]; ok {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", req.ID, r)
		} else {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", req.ID)
		}
	}
	return 0
}

// The gateway's own tools are as well described as it wants those of others to be.
func TestBuiltinsPassLint(t *testing.T) {
	for _, tool := range builtins(nil) {
		for _, p := range lint.Check(tool) {
			t.Errorf("%s: %s: %s", tool.Name, p.Path, p.What)
		}
	}
}
