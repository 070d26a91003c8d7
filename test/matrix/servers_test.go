package matrix

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/test/npm"
	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/test/suite"
)

// What a client does with a server. elicit is a call in which the server asks the
// client's user something.
var abilities = []string{"list", "call", "resource", "prompt", "elicit"}

// A step is one thing that a client does.
type step struct {
	Server  string         `json:"server"`
	Ability string         `json:"ability"`
	Name    string         `json:"name"` // of the tool or prompt, or the address, as the gateway shows it
	Args    map[string]any `json:"args,omitempty"`
	want    string         // part of the result
}

// An upstream is one of those behind the gateway, with what it has to use.
type upstream struct {
	name, title string
	config      stage.Server
	uses        map[string]step // by ability; Name is the server's own
}

// steps are all uses of a server, by the names that clients see.
func (s upstream) steps() (all []step) {
	all = append(all, step{Server: s.name, Ability: "list", want: `"` + s.name + "__"})
	for _, ability := range abilities[1:] {
		use, has := s.uses[ability]
		if !has {
			continue
		}
		use.Server, use.Ability = s.name, ability
		if ability == "resource" {
			use.Name = "sallyport:" + s.name + "/" + use.Name
		} else {
			use.Name = s.name + "__" + use.Name
		}
		all = append(all, use)
	}
	return all
}

type args = map[string]any

// servers starts what must run before the gateway, and describes all.
func servers(t *testing.T, n npm.Modules, self string) []upstream {
	t.Helper()
	dir := filepath.Join(stage.OpenDir(t), "files")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o777), os.WriteFile(filepath.Join(dir, "a.txt"), []byte("what the file says"), 0o644)); err != nil { //nolint:gosec // the server's own user writes there
		t.Fatal(err)
	}
	memory := n.Server("server-memory")
	memory.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "graph.jsonl")}
	pkg := func(name string) string { return name + " " + version(t, n, name) }
	return []upstream{
		{"everything", pkg("server-everything"), n.Server("server-everything", "stdio"), map[string]step{
			"call":     {Name: "get-sum", Args: args{"a": 2, "b": 40}, want: "42"},
			"resource": {Name: "demo://resource/dynamic/text/7", want: "This is a plaintext resource created at"},
			"prompt":   {Name: "args-prompt", Args: args{"city": "Oslo"}, want: "weather in Oslo"},
			"elicit":   {Name: "trigger-elicitation-request", want: "Ann"},
		}},
		{"filesystem", pkg("server-filesystem"), n.Server("server-filesystem", dir), map[string]step{
			"call": {Name: "read_text_file", Args: args{"path": filepath.Join(dir, "a.txt")}, want: "what the file says"},
		}},
		{"memory", pkg("server-memory"), memory, map[string]step{
			"call": {Name: "create_entities", Args: args{"entities": []any{args{"name": "door", "entityType": "thing", "observations": []any{"it is shut"}}}}, want: "entit"},
		}},
		{"thinking", pkg("server-sequential-thinking"), n.Server("server-sequential-thinking"), map[string]step{
			"call": {Name: "sequentialthinking", Args: args{"thought": "one", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": false}, want: "thoughtHistoryLength"},
		}},
		{"postgres", pkg("server-postgres"), n.Server("server-postgres", database(t)), map[string]step{
			"call":     {Name: "query", Args: args{"sql": "SELECT name FROM doors WHERE id = 1"}, want: "front"},
			"resource": {Name: "postgres://postgres@localhost/doors/schema", want: "column_name"},
		}},
		{"gosdk", "go-sdk " + required(t, "github.com/modelcontextprotocol/go-sdk"), stage.Server{URL: suite.Everything(t)}, reference2026},
		{"gosessions", "go-sdk " + required(t, "github.com/modelcontextprotocol/go-sdk") + " with sessions", stage.Server{URL: suite.Everything(t, "-stateless=false")}, reference2025},
		{"mcpgo", "mcp-go " + required(t, "github.com/mark3labs/mcp-go"), stage.Server{Command: self, Env: map[string]string{envFixture: "1"}}, map[string]step{
			"call":     {Name: "add", Args: args{"a": 2, "b": 40}, want: "42"},
			"resource": {Name: "doc://readme", want: "what the document says"},
			"prompt":   {Name: "greet", Args: args{"name": "Ann"}, want: "Hello, Ann"},
			"elicit":   {Name: "ask", want: "Ann"},
		}},
		odd(t),
	}
}

// What the reference SDK's conformance server has for each era.
var (
	reference2025 = map[string]step{
		"call":     {Name: "test_simple_text", want: "This is a simple text response"},
		"resource": {Name: "test://static-text", want: "content of the static text resource"},
		"prompt":   {Name: "test_prompt_with_arguments", Args: args{"arg1": "one", "arg2": "two"}, want: "one"},
		"elicit":   {Name: "test_elicitation", Args: args{"message": "who?"}, want: "Ann"},
	}
	reference2026 = map[string]step{
		"call": reference2025["call"], "resource": reference2025["resource"], "prompt": reference2025["prompt"],
		"elicit": {Name: "test_input_required_result_elicitation", want: "Hello, Ann"},
	}
)

// database starts a PostgreSQL server with a table, and returns its URL.
func database(t *testing.T) string {
	t.Helper()
	s := postgrestest.New(t)
	s.SQL(t, s.URL("postgres"), "CREATE TABLE doors (id int, name text); INSERT INTO doors VALUES (1, 'front');")
	return "postgres://postgres@localhost/postgres?host=" + s.Dir
}
