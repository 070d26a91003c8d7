package sandbox

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

func job(lang, args string) sallyport.Job {
	return sallyport.Job{
		Tool: sallyport.Tool{Name: "run_" + lang, Code: &sallyport.Script{Language: lang}}, Args: json.RawMessage(args),
		Tier: sallyport.TierGVisor, Limits: sallyport.DefaultLimits(),
	}
}

// Every odd timeout gets an error that says what to do, or means what it says.
func TestTO56_TimeoutArgument(t *testing.T) {
	for _, tt := range []struct {
		arg  string
		want time.Duration
		err  string
	}{
		{`1`, time.Second, ""},
		{`0.5`, 500 * time.Millisecond, ""},
		{`30`, 30 * time.Second, ""},
		{`1e1`, 10 * time.Second, ""},
		{`1e-9`, time.Millisecond, ""},
		{`0`, 0, "timeout_seconds is 0"},
		{`-1`, 0, "timeout_seconds is -1"},
		{`-0`, 0, "timeout_seconds is -0"},
		{`30.5`, 0, "above the tool's limit of 30 s"},
		{`1e12`, 0, "above the tool's limit"},
		{`1e400`, 0, "out of range"},
		{`"30"`, 0, "a string, not a number"},
		{`null`, 0, "null, not a number"},
		{`true`, 0, "a boolean, not a number"},
		{`[30]`, 0, "an array, not a number"},
	} {
		c, err := command(job("python", `{"code":"x","timeout_seconds":`+tt.arg+`}`))
		if tt.err == "" {
			if err != nil || c.Limits.Timeout != tt.want {
				t.Errorf("%s: %v, %v; want %v", tt.arg, c.Limits.Timeout, err, tt.want)
			}
			continue
		}
		e, ok := errors.AsType[*sallyport.Error](err)
		if !ok || e.Code != sallyport.Invalid || !strings.Contains(e.Message, tt.err) || e.Hint == "" || !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%s: %v; want %q", tt.arg, err, tt.err)
		}
	}
}

func TestCommand(t *testing.T) {
	own := job("shell", `{"n":1}`)
	own.Tool.Code.Source = "cat"
	egress := job("python", `{"code":"x"}`)
	egress.Egress = []string{"example.com:443"}
	for _, tt := range []struct {
		name string
		job  sallyport.Job
		argv string
		err  string
	}{
		{"python", job("python", `{"code":"print(1)"}`), "python3 main.py", ""},
		{"javascript", job("javascript", `{"code":"require('fs')"}`), "node main.js", ""},
		{"module", job("javascript", `{"code":"import fs from 'fs'"}`), "node main.mjs", ""},
		{"not a module", job("javascript", `{"code":"const importance = import('fs')"}`), "node main.js", ""},
		{"shell", job("shell", `{"code":"ls","network":"none","tier":"gvisor"}`), "bash main.sh", ""},
		{"own source", own, "bash main.sh", ""},
		{"no code", job("python", `{}`), "", "code is missing"},
		{"blank code", job("python", `{"code":" \n"}`), "", "code is missing"},
		{"code of another type", job("python", `{"code":1}`), "", "code is a number"},
		{"unknown argument", job("python", `{"code":"x","mount":"/"}`), "", `no argument "mount"`},
		{"files as a list", job("python", `{"code":"x","files":[]}`), "", "files is an array"},
		{"file of another type", job("python", `{"code":"x","files":{"a":null}}`), "", `files["a"] is null`},
		{"file over the code", job("python", `{"code":"x","files":{"main.py":"y"}}`), "", "the code itself"},
		{"network", job("python", `{"code":"x","network":"all"}`), "", "take the network away"},
		{"language", job("ruby", `{"code":"x"}`), "", "ruby"},
		{"egress", egress, "python3 main.py", ""},
		{"not code", sallyport.Job{}, "", "no code"},
	} {
		c, err := command(tt.job)
		if tt.err == "" {
			if err != nil || strings.Join(c.Argv, " ") != tt.argv || len(c.Files) != 1 {
				t.Errorf("%s: %q, %d files, %v; want %q", tt.name, c.Argv, len(c.Files), err, tt.argv)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.err) || !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.err)
		}
	}
	if c, _ := command(egress); len(c.Reach) != 1 || c.Reach[0] != "example.com:443" {
		t.Errorf("egress: reach %q", c.Reach)
	}
	if c, _ := command(own); string(c.Stdin) != `{"n":1}` || string(c.Files["main.sh"]) != "cat" {
		t.Errorf("a tool's own code: stdin %q, files %q", c.Stdin, c.Files)
	}
}

// A call chooses among the images that its tool lists, and no other; a tool's own
// image is the one that its manifest names.
func TestImageArgument(t *testing.T) {
	const own, data = "sha256-own", "sha256-data"
	listed := sallyport.Images{"data": data}
	for _, tt := range []struct {
		args     string
		manifest sallyport.Manifest
		want     string // "" for an error
	}{
		{`{"code":"x"}`, sallyport.Manifest{Image: own, Images: listed}, own},
		{`{"code":"x","image":"data"}`, sallyport.Manifest{Image: own, Images: listed}, data},
		{`{"code":"x","image":"data"}`, sallyport.Manifest{Image: own}, ""},
		{`{"code":"x","image":"other"}`, sallyport.Manifest{Images: listed}, ""},
		{`{"code":"x","image":"sha256-data"}`, sallyport.Manifest{Images: listed}, ""},
		{`{"code":"x","image":""}`, sallyport.Manifest{Images: listed}, ""},
		{`{"code":"x","image":["data"]}`, sallyport.Manifest{Images: listed}, ""},
		{`{"code":"x","image":null}`, sallyport.Manifest{Images: listed}, ""},
	} {
		j := job("python", tt.args)
		j.Tool.Manifest = tt.manifest
		c, err := command(j)
		if tt.want == "" && (err == nil || c.Image == data) || tt.want != "" && (err != nil || c.Image != tt.want) {
			t.Errorf("%s: %q, %v; want %q", tt.args, c.Image, err, tt.want)
		}
	}
	for _, tool := range Tools(nil) {
		if strings.Contains(string(tool.InputSchema), `"image"`) {
			t.Errorf("%s offers images where there are none", tool.Name)
		}
	}
	for _, tool := range Tools(listed) {
		if !strings.Contains(string(tool.InputSchema), `"image":{"description":"The files and programs that the code finds. Leave it out for the usual ones.","enum":["data"],"type":"string"}`) {
			t.Errorf("%s: %s", tool.Name, tool.InputSchema)
		}
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"code":"x"}`, `{"code":"x","files":{"a":"b"},"timeout_seconds":1}`, `[]`, `{"timeout_seconds":1e999}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := parseArguments(raw, 30*time.Second)
		if err == nil && (a.code == "" || a.timeout < 0 || a.timeout > 30*time.Second) {
			t.Fatalf("%q → %+v", raw, a)
		}
		if err != nil && !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Fatalf("%q → %v", raw, err)
		}
	})
}

func TestPresent(t *testing.T) {
	get := func(j sallyport.Job, o Outcome) (m struct {
		Content           []content
		IsError           bool
		StructuredContent map[string]any
		Meta              map[string]map[string]any `json:"_meta"`
	}) {
		t.Helper()
		out, err := present(j, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Content, &m); err != nil {
			t.Fatal(err)
		}
		if m.IsError != out.IsError {
			t.Errorf("isError %v in %s, %v beside it", m.IsError, out.Content, out.IsError)
		}
		return m
	}
	m := get(job("python", ``), Outcome{Stdout: []byte("a\xff"), Stderr: []byte("warn"), ExitCode: 3, SandboxID: "x", Tier: sallyport.TierGVisor})
	if m.IsError || m.StructuredContent["stdout"] != "Yf8=" || m.StructuredContent["stdout_encoding"] != "base64" ||
		m.StructuredContent["stderr"] != "warn" || m.StructuredContent["stderr_encoding"] != nil || m.StructuredContent["exit_code"] != 3.0 {
		t.Errorf("%+v", m)
	}
	if m.Content[0].Text != "a\uFFFD" || m.Content[1].Text != "stderr:\nwarn" || !strings.Contains(m.Content[2].Text, "status 3") {
		t.Errorf("%+v", m.Content)
	}
	cut := job("python", ``)
	cut.Limits.Output = 5
	m = get(cut, Outcome{Stdout: []byte("aa€\xe2"), Stderr: []byte("€\xe2"), Truncated: true}) // the bound came within a character of stdout
	if m.StructuredContent["stdout"] != "aa€" || m.StructuredContent["stdout_encoding"] != nil || m.StructuredContent["stderr_encoding"] != "base64" {
		t.Errorf("%+v", m.StructuredContent)
	}
	if m = get(job("python", ``), Outcome{KilledBy: "memory", ExitCode: 137, Signal: "SIGKILL"}); !m.IsError || m.StructuredContent["killed_by"] != "memory" {
		t.Errorf("%+v", m)
	}
	reach := []sallyport.Connection{{Target: "a.test:443", Allowed: true}}
	for _, c := range []struct {
		o       Outcome
		unclear bool
	}{
		{Outcome{KilledBy: "timeout", Connections: reach}, true},
		{Outcome{KilledBy: "timeout", Connections: []sallyport.Connection{{Target: "b.test:443", Reason: "not_allowed"}}}, false},
		{Outcome{ExitCode: 1, Connections: reach}, false}, // it says itself that it failed
	} {
		if out, err := present(job("python", ``), c.o); err != nil || out.Unclear != c.unclear {
			t.Errorf("%+v: unclear %t, %v", c.o, out.Unclear, err)
		}
	}
	own := job("python", `{}`)
	own.Tool.Code.Source, own.Tool.OutputSchema = "x", json.RawMessage(`{"type":"object"}`)
	if m = get(own, Outcome{Stdout: []byte(`{"sum":3}`)}); m.IsError || m.StructuredContent["sum"] != 3.0 || m.Meta[metaRun]["exit_code"] != 0.0 {
		t.Errorf("%+v", m)
	}
	if m = get(own, Outcome{Stdout: []byte(`3`)}); !m.IsError || m.StructuredContent != nil {
		t.Errorf("%+v", m)
	}
}

func TestWholeText(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"a", "a"}, {"€", "€"}, {"a€\xe2", "a€"}, {"a\xe2\x82", "a"}, {"😀\xf0\x9f\x98", "😀"}, {"\xe2", ""},
		{"a\xff", "a\xff"}, {"\x82\x82\x82\x82", "\x82\x82\x82\x82"}, {"a\x82", "a\x82"}, // no text: as it is
	} {
		if got := wholeText([]byte(c.in)); string(got) != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}
