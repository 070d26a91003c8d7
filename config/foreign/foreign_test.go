package foreign

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

var variables = map[string]string{"GH": "ghp_0123456789abcdefghijABCDEFGHIJ", "PLACE": "/srv/files", "REGION": "eu-central", "BUILD": "/tmp/build-0123456789abcdef0123/bin"}

func lookup(name string) (string, bool) { v, ok := variables[name]; return v, ok }

func read(t *testing.T, src string) map[string]Server {
	t.Helper()
	list, _, err := Read([]byte(src), lookup)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Server{}
	for _, s := range list {
		out[s.Name] = s
	}
	return out
}

const claude = `{
  // comments are what editors write
  "theme": "dark",
  "mcpServers": {
    "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@1.2.3", "${PLACE}"]},
    "git hub": {"type": "stdio", "command": "npx", "args": ["-y", "gh@1.0.0"], "env": {"GITHUB_TOKEN": "ghp_0123456789abcdefghijABCDEFGHIJ", "LOG_LEVEL": "info", "PORT": 8080, "ODD": "xK9_pZ!q2"}, "alwaysAllow": ["x"]},
    "remote": {"type": "http", "url": "https://mcp.example/mcp", "headers": {"Authorization": "Bearer ${GH}", "X-Region": "${REGION:-us}", "Accept": "application/json"}},
    "bridge": {"command": "npx", "args": ["mcp-remote@0.1.0", "https://sse.example/sse", "--header", "Authorization:${AUTH}"], "env": {"AUTH": "Bearer sk-0123456789abcdefghij"}},
    "windows": {"command": "cmd", "args": ["/c", "npx", "-y", "memory@2.0.0"], "disabled": true},
    "windows-too": {"command": "C:\\Windows\\System32\\cmd.exe", "args": ["/C", "npx.cmd", "-y", "memory@2.0.0"]},
    "elsewhere": {"command": "/Users/me/.nvm/versions/node/v22.0.0/bin/npx", "args": ["-y", "memory@2.0.0"]},
    "long": {"command": "${BUILD}/x", "args": ["/tmp/TestScripts0123456789/001/definition.json", "123e4567-e89b-12d3-a456-426614174000"]},
    "drawn": {"command": "x", "args": ["q8f72hd91kdl20fjd83hfks9"]},
    "none": {}, "both": {"command": "x", "url": "https://a.example/"}, "ws": {"type": "websocket", "url": "wss://a.example/"},
    "list": [], "argv": {"command": "x", "args": "a b"}, "key": {"command": "x", "args": ["--api-key", "abc123def"]},
    "dsn": {"command": "x", "args": ["postgres://app:hunter2@db/x"]}, "query": {"url": "https://a.example/mcp?api_key=abcdef"},
    "user": {"url": "https://u:p@a.example/"}, "unset": {"command": "x", "args": ["${NOWHERE}"]}, "ours": {"command": "x", "env": {"A": "${secret:other}"}},
    "file": {"command": "x", "envFile": ".env"}, "scheme": {"url": "file:///etc/passwd"}, "deep": {"command": "x", "env": {"A": {"b": 1}}},
    "asks": {"command": "x", "env": {"API_KEY": "${MISSING}", "EMPTY": ""}},
  },
}`

func TestClaude(t *testing.T) {
	got := read(t, claude)
	for _, name := range []string{"drawn", "none", "both", "ws", "list", "argv", "key", "dsn", "query", "user", "unset", "ours", "file", "scheme", "deep"} {
		if s := got[name]; s.Problem == "" || s.Hint == "" || s.Config != nil || len(s.Secrets) != 0 {
			t.Errorf("%s passes: %+v", name, s)
		}
	}
	for name, want := range map[string]Config{
		"files":   {Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-filesystem@1.2.3", "/srv/files"}},
		"git-hub": {Command: "npx", Args: []string{"-y", "gh@1.0.0"}, Env: map[string]string{"GITHUB_TOKEN": "${secret:git-hub.GITHUB_TOKEN}", "LOG_LEVEL": "info", "PORT": "8080", "ODD": "${secret:git-hub.ODD}"}},
		"remote":  {URL: "https://mcp.example/mcp", Headers: map[string]string{"Authorization": "Bearer ${secret:remote.Authorization}", "X-Region": "eu-central", "Accept": "application/json"}},
		"bridge":  {URL: "https://sse.example/sse", Headers: map[string]string{"Authorization": "Bearer ${secret:bridge.Authorization}"}},
		"long":    {Command: "/tmp/build-0123456789abcdef0123/bin/x", Args: []string{"/tmp/TestScripts0123456789/001/definition.json", "123e4567-e89b-12d3-a456-426614174000"}},
		"windows": {Command: "npx", Args: []string{"-y", "memory@2.0.0"}}, "windows-too": {Command: "npx", Args: []string{"-y", "memory@2.0.0"}},
		"elsewhere": {Command: "npx", Args: []string{"-y", "memory@2.0.0"}},
		"asks":      {Command: "x", Env: map[string]string{"API_KEY": "${secret:asks.API_KEY}", "EMPTY": ""}},
	} {
		s := got[name]
		a, _ := json.Marshal(s.Config)
		b, _ := json.Marshal(want)
		if s.Problem != "" || string(a) != string(b) {
			t.Errorf("%s: %s %s\n%s, want\n%s", name, s.Problem, s.Hint, a, b)
		}
	}
	if s := got["git-hub"]; s.Was != "git hub" || s.Secrets["git-hub.GITHUB_TOKEN"] != variables["GH"] || len(s.Notes) != 1 {
		t.Errorf("%+v", s)
	}
	if got["remote"].Secrets["remote.Authorization"] != variables["GH"] || got["bridge"].Secrets["bridge.Authorization"] != "sk-0123456789abcdefghij" {
		t.Errorf("%v %v", got["remote"].Secrets, got["bridge"].Secrets)
	}
	if !got["windows"].Disabled || !slices.Equal(got["asks"].Asks, []string{"asks.API_KEY"}) {
		t.Errorf("%+v %+v", got["windows"], got["asks"])
	}
}

// No value that is a secret stands anywhere but in Secrets.
func TestSecretsAreNotShown(t *testing.T) {
	for name, s := range read(t, claude) {
		b, _ := json.Marshal(s)
		shown := fmt.Sprintf("%s %s %v %s", s.Problem, s.Hint, s.Notes, b)
		for _, secret := range []string{"ghp_01", "hunter2", "sk-0123", "abc123def", "xK9_pZ", "api_key=abcdef", "u:p@"} {
			if strings.Contains(shown, secret) {
				t.Errorf("%s shows %s: %s", name, secret, shown)
			}
		}
	}
}

func TestVSCode(t *testing.T) {
	got := read(t, `{"inputs": [{"type": "promptString", "id": "token", "password": true}, {"id": "region", "default": "eu"}],
	  "servers": {"a": {"type": "stdio", "command": "npx", "args": ["-y", "a@1.0.0", "--region", "${input:region}"], "env": {"TOKEN": "${input:token}", "HOME_DIR": "${env:PLACE}"}, "dev": {"watch": "x"}},
	              "b": {"command": "x", "args": ["--dir", "${workspaceFolder}/data"]}, "c": {"command": "x", "args": ["${input:token}"]}}}`)
	a := got["a"]
	if a.Problem != "" || !slices.Equal(a.Asks, []string{"a.TOKEN"}) || a.Config.Env["TOKEN"] != "${secret:a.TOKEN}" || a.Config.Env["HOME_DIR"] != "/srv/files" || a.Config.Args[3] != "eu" || len(a.Notes) != 1 {
		t.Errorf("%+v %+v", a, a.Config)
	}
	if got["b"].Problem == "" || got["c"].Problem == "" {
		t.Errorf("%+v %+v", got["b"], got["c"])
	}
	if s := read(t, `{"editor.fontSize": 12, "mcp": {"servers": {"a": {"command": "x"}}}}`)["a"]; s.Config == nil {
		t.Errorf("settings.json: %+v", s)
	}
}

const weather = `{"$schema":"https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json","name":"io.example/weather","description":"x","version":"1.0.2",
  "packages":[{"registryType":"pypi","identifier":"w","version":"1.0.2","transport":{"type":"stdio"}},
    {"registryType":"npm","identifier":"@example/weather","version":"1.0.2","runtimeHint":"npx","transport":{"type":"stdio"},
     "packageArguments":[{"type":"named","name":"--units","value":"metric"},{"type":"positional","value":"{city}","variables":{"city":{"default":"Bonn"}}},{"type":"positional","valueHint":"x"}],
     "environmentVariables":[{"name":"API_KEY","isRequired":true,"isSecret":true},{"name":"MODE","default":"fast"},{"name":"MAYBE"}]}],
  "remotes":[{"type":"streamable-http","url":"https://w.example/mcp"}]}`

func TestServerJSON(t *testing.T) {
	s := read(t, weather)["weather"]
	if s.Problem != "" || s.Was != "io.example/weather" || strings.Join(s.Config.Args, " ") != "-y @example/weather@1.0.2 --units metric Bonn" ||
		s.Config.Env["API_KEY"] != "${secret:weather.API_KEY}" || s.Config.Env["MODE"] != "fast" || !slices.Equal(s.Asks, []string{"weather.API_KEY"}) {
		t.Errorf("%+v %+v", s, s.Config)
	}
	remote := `{"name":"io.example/r","remotes":[{"type":"streamable-http","url":"https://{region}.example/mcp","variables":{"region":{"default":"eu"}},"headers":[{"name":"Authorization","value":"Bearer {key}","isRequired":true,"isSecret":true,"variables":{"key":{"isSecret":true}}}]}]}`
	if s := read(t, remote)["r"]; s.Problem != "" || s.Config.URL != "https://eu.example/mcp" || s.Config.Headers["Authorization"] != "Bearer ${secret:r.Authorization}" || len(s.Asks) != 1 {
		t.Errorf("%+v %+v", s, s.Config)
	}
	for edit, want := range map[string]string{
		`"version":"1.0.2","runtimeHint"/"version":"latest","runtimeHint"`:                  "https://w.example/mcp",
		`"version":"1.0.2","runtimeHint"/"fileSha256":"00","version":"1.0.2","runtimeHint"`: "https://w.example/mcp",
		`npm/oci`: "https://w.example/mcp",
	} {
		from, to, _ := strings.Cut(edit, "/")
		if s := read(t, strings.Replace(weather, from, to, 1))["weather"]; s.Config == nil || s.Config.URL != want {
			t.Errorf("%s: %+v", edit, s)
		}
	}
	for _, bad := range []string{
		`{"name":"io.example/a","packages":[]}`, `{"name":"io.example/a","packages":[{"registryType":"nuget","version":"1.0.0"}]}`, `{"name":"","packages":[]}`,
		`{"name":"io.example/a","packages":7}`, `{"name":"io.example/a","remotes":[{"type":"ws","url":"x"}]}`, `{"name":"io.example/a","remotes":[{"type":"sse","url":"file:///x"}]}`,
		`{"server":` + weather + `,"_meta":{"io.modelcontextprotocol.registry/official":{"status":"deleted"}}}`,
	} {
		for _, s := range read(t, bad) {
			if s.Problem == "" || s.Hint == "" {
				t.Errorf("%s passes: %+v", bad, s)
			}
		}
	}
}

func TestPage(t *testing.T) {
	list, next, err := Page([]byte(`{"servers":[{"server":` + weather + `},{"server":{}},7],"metadata":{"nextCursor":"n","count":3}}`))
	if err != nil || next != "n" || len(list) != 3 || list[0].Problem != "" || list[1].Problem == "" || list[2].Problem == "" {
		t.Errorf("%+v %q %v", list, next, err)
	}
	for _, bad := range []string{`{"servers":{}}`, `[]`, `x`} {
		if _, _, err := Page([]byte(bad)); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestWhatIsNoConfiguration(t *testing.T) {
	for _, src := range []string{``, `[]`, `{}`, `{"mcpServers":[]}`, `{"mcpServers":{},"mcpServers":{}}`, `{} x`, `{"a":`, "\xff", `{"servers":7}`, strings.Repeat(" ", MaxBytes+1)} {
		if _, _, err := Read([]byte(src), lookup); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%.40q: %v", src, err)
		}
	}
}

func TestTwins(t *testing.T) {
	got, _, err := Read([]byte(`{"mcpServers":{"a b":{"command":"x"},"a-b":{"command":"y"},"§":{"command":"z"},
		"a b":{"command":"w"},"env":{"command":"x","env":{"A":"1","A":"2"}},"last":{"command":"x"}}}`), lookup)
	if err != nil || len(got) != 6 || got[0].Config.Command != "x" || !strings.Contains(got[3].Problem, "twice") || got[4].Problem == "" || got[5].Problem != "" || got[0].Problem != "" || !strings.Contains(got[1].Problem, `"a b"`) || got[2].Problem == "" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestSecretWords(t *testing.T) {
	for _, name := range []string{"API_KEY", "apiKey", "GITHUB_TOKEN", "githubToken", "DB_PASSWORD", "PASS", "X-Api-Key", "Authorization", "MY_PAT", "SLACK_WEBHOOK_URL", "DATABASE_URL", "clientSecret", "Cookie"} {
		if !secretName(name) {
			t.Errorf("%s is no secret", name)
		}
	}
	for _, name := range []string{"LOG_LEVEL", "PATH", "NODE_ENV", "REGION", "KEYBOARD", "MONKEY", "COMPASS", "PATTERN", "Accept"} {
		if secretName(name) {
			t.Errorf("%s is a secret", name)
		}
	}
	for _, v := range []string{"ghp_0123456789abcdefghijABCDEFGHIJ", "Bearer abcdef012345", "postgres://u:p@h/d", "sk-proj-abcdefghijkl", "AKIA0123456789ABCDEF", "0a1b2c3d4e5f60718293a4b5", "eyJhbGciOiJIUzI1NiJ9.x"} {
		if harmless(v) {
			t.Errorf("%s is harmless", v)
		}
	}
	for _, v := range []string{"", "1", "true", "30s", "info", "production", "/srv/data", "https://api.example.com/v1", "eu-central", "localhost:8080", "application/json"} {
		if !harmless(v) {
			t.Errorf("%s is not harmless", v)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{claude, weather, `{"servers":{"a":{"command":"${input:x}"}},"inputs":[{"id":"x"}]}`, `{"servers":[{"server":{"name":"a/b"}}]} // x`, "{/*"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		list, _, err := Read(src, func(string) (string, bool) { return "", false })
		if err != nil {
			return
		}
		for _, s := range list {
			if (s.Config == nil) == (s.Problem == "") {
				t.Errorf("neither usable nor refused: %+v", s)
			}
			for name := range maps.Keys(s.Secrets) {
				if len(name) > 64 {
					t.Errorf("the name %q is too long for a secret", name)
				}
			}
		}
	})
}
