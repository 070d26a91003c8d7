package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/test/bearer"
	"sallyport.dev/sallyport/test/npm"
)

// A client is one of those before the gateway, in one of its eras.
type client struct {
	title, era string
	cannot     map[string]bool // abilities that it does not have
	use        func(t *testing.T, p part) []seen
}

// A part is what a client is to do.
type part struct {
	Client string `json:"client,omitempty"` // of play.mjs
	Era    string `json:"era"`
	URL    string `json:"url"`
	Token  string `json:"token"`
	Answer args   `json:"answer"` // to what a server asks
	Steps  []step `json:"steps"`
}

// A seen is what came of a step.
type seen struct {
	Server, Ability, Error string
	Result                 json.RawMessage
}

func clients(t *testing.T, n npm.Modules) []client {
	v1, v2 := "TypeScript SDK "+version(t, n, "sdk"), "TypeScript SDK "+version(t, n, "client")
	reference := "go-sdk " + required(t, "github.com/modelcontextprotocol/go-sdk")
	inspector := "Inspector CLI " + version(t, n, "inspector")
	mute := map[string]bool{"elicit": true}
	return []client{
		{reference, "modern", nil, useSDK},
		{reference, "legacy", nil, useSDK},
		{v1, "legacy", nil, script(n, "v1")},
		{v2, "modern", nil, script(n, "v2")},
		{v2, "legacy", nil, script(n, "v2")},
		{inspector, "modern", mute, script(n, "inspector")},
		{inspector, "legacy", mute, script(n, "inspector")},
	}
}

// script is a client of npm, which play.mjs plays.
func script(n npm.Modules, name string) func(*testing.T, part) []seen {
	return func(t *testing.T, p part) (all []seen) {
		t.Helper()
		p.Client = name
		in, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, n.Node, "play.mjs")
		cmd.Stdin = bytes.NewReader(in)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "TMPDIR="+t.TempDir())
		var complaints bytes.Buffer
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &all)
		}
		if err != nil {
			t.Fatalf("play.mjs: %v\n%s\n%s", err, out, complaints.Bytes())
		}
		return all
	}
}

var versions = map[string]string{"modern": "2026-07-28", "legacy": "2025-11-25"}

// useSDK is the reference SDK's client.
func useSDK(t *testing.T, p part) (all []seen) {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "matrix", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) { return p.answer(r.Params) },
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: p.URL, HTTPClient: bearer.Client(p.Token)},
		&mcp.ClientSessionOptions{ProtocolVersion: versions[p.Era]})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, st := range p.Steps {
		one := seen{Server: st.Server, Ability: st.Ability}
		result, err := sdkStep(ctx, s, st)
		if err == nil {
			one.Result, err = json.Marshal(result)
		}
		if err != nil {
			one.Error = err.Error()
		}
		all = append(all, one)
	}
	return all
}

// answer fills in those fields of a form that the part has something for.
func (p part) answer(asked *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	b, err := json.Marshal(asked.RequestedSchema)
	var form struct{ Properties map[string]any }
	if err = errors.Join(err, json.Unmarshal(b, &form)); err != nil {
		return nil, err
	}
	content := args{}
	for field, value := range p.Answer {
		if _, wanted := form.Properties[field]; wanted {
			content[field] = value
		}
	}
	return &mcp.ElicitResult{Action: "accept", Content: content}, nil
}

func sdkStep(ctx context.Context, s *mcp.ClientSession, st step) (any, error) {
	switch st.Ability {
	case "list":
		var tools []*mcp.Tool
		for tool, err := range s.Tools(ctx, nil) {
			if err != nil {
				return nil, err
			}
			tools = append(tools, tool)
		}
		return map[string]any{"tools": tools}, nil
	case "call", "elicit":
		return s.CallTool(ctx, &mcp.CallToolParams{Name: st.Name, Arguments: st.Args})
	case "resource":
		return s.ReadResource(ctx, &mcp.ReadResourceParams{URI: st.Name})
	case "prompt":
		text := map[string]string{}
		for name, v := range st.Args {
			text[name] = fmt.Sprint(v)
		}
		return s.GetPrompt(ctx, &mcp.GetPromptParams{Name: st.Name, Arguments: text})
	}
	return nil, errors.New("no such ability")
}

// version is that of an installed package of @modelcontextprotocol.
func version(t *testing.T, n npm.Modules, pkg string) string {
	t.Helper()
	b, err := os.ReadFile(n.Path("@modelcontextprotocol", pkg, "package.json"))
	var p struct{ Version string }
	if err = errors.Join(err, json.Unmarshal(b, &p)); err != nil {
		t.Fatal(err)
	}
	return p.Version
}

// required is the version of a module in go.mod.
func required(t *testing.T, module string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(b, []byte(module+" "))
	v, _, _ := bytes.Cut(rest, []byte("\n"))
	v, _, _ = bytes.Cut(v, []byte(" "))
	if len(v) == 0 {
		t.Fatalf("%s is not in go.mod", module)
	}
	return string(v)
}
