package sandbox_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/test/await"
)

// A shown is a result as an agent gets it.
type shown struct {
	IsError bool
	Content []struct {
		Type, Text, MimeType string
		Data                 []byte
		Resource             struct {
			URI, MimeType, Text string
			Blob                []byte
		}
	}
	StructuredContent map[string]any
}

func ask(t *testing.T, b *sandbox.Backend, job sallyport.Job) (shown, error) {
	t.Helper()
	out, err := b.Run(t.Context(), job)
	var s shown
	if err == nil {
		err = json.Unmarshal(out.Content, &s)
	}
	return s, err
}

func toolNamed(t *testing.T, name string) sallyport.Tool {
	t.Helper()
	for _, tool := range sandbox.Tools(nil) {
		if tool.Name == name {
			return tool
		}
	}
	t.Fatalf("no tool %s", name)
	return sallyport.Tool{}
}

// Agents of one gateway, and of two tenants, that use one session name never
// meet; neither do two users on whose behalf one agent acts.
func TestTO51_SessionsOfPrincipals(t *testing.T) {
	b := newHost(t).start(t, sandbox.Options{})
	who := []sallyport.Principal{
		{Tenant: "t", ID: "a"}, {Tenant: "t", ID: "b"}, {Tenant: "u", ID: "a"}, {Tenant: "t", ID: "a", OnBehalfOf: "user:1"},
	}
	run := func(p sallyport.Principal, tool, args string) (shown, error) {
		j := codeJob(toolNamed(t, tool), args)
		j.Who = p
		return ask(t, b, j)
	}
	for i, p := range who {
		s, err := run(p, "run_python", fmt.Sprintf(`{"code":"import os\nprint('x' in globals(), os.listdir('.'))\nx = %d\nopen('f%d', 'w').write('f')","session":"s"}`, i, i))
		if err != nil || s.StructuredContent["stdout"] != "False []\n" || s.StructuredContent["session_new"] != true || s.StructuredContent["session"] != "s" {
			t.Errorf("%v: %+v, %v", p, s, err)
		}
	}
	for i, p := range who {
		if s, err := run(p, "run_python", `{"code":"print(x)","session":"s"}`); err != nil || s.StructuredContent["stdout"] != fmt.Sprintf("%d\n", i) || s.StructuredContent["session_new"] != nil {
			t.Errorf("%v again: %+v, %v", p, s, err)
		}
		s, err := run(p, "sandbox_session", `{"action":"files","session":"s"}`)
		if files, _ := s.StructuredContent["files"].([]any); err != nil || len(files) != 1 {
			t.Errorf("%v: files %+v, %v", p, s, err)
		}
		s, err = run(p, "sandbox_session", `{"action":"list"}`)
		if all, _ := s.StructuredContent["sessions"].([]any); err != nil || len(all) != 1 {
			t.Errorf("%v: sessions %+v, %v", p, s, err)
		}
	}
	stranger := sallyport.Principal{Tenant: "t", ID: "c"}
	for _, args := range []string{
		`{"action":"end","session":"s"}`, `{"action":"files","session":"s"}`, `{"action":"get","session":"s","path":"f0"}`,
		`{"action":"put","session":"s","path":"g","content":"x"}`, `{"action":"output","session":"s","job":1}`,
		`{"action":"fork","session":"s","names":["t"]}`,
	} {
		if _, err := run(stranger, "sandbox_session", args); sallyport.CodeOf(err) != sallyport.NotFound {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, err := run(who[0], "sandbox_session", `{"action":"end","session":"s"}`); err != nil {
		t.Error(err)
	}
	if _, err := run(who[0], "sandbox_session", `{"action":"files","session":"s"}`); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("after its end: %v", err)
	}
	if _, err := run(who[1], "sandbox_session", `{"action":"files","session":"s"}`); err != nil {
		t.Errorf("a stranger's end ended it: %v", err)
	}
}

// What a session was made with stays: another profile, way out or secret is
// refused, in words.
func TestSessionTerms(t *testing.T) {
	hits := 0
	server := serveAt(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { hits++; fmt.Fprint(w, "hello") }))
	addr := server.Listener.Addr().String()
	h := newHost(t)
	h.more = []string{"-egress-private", "127.0.0.0/8", "-session-rest", "300ms"}
	vault := secrets{"t/k": "value-one"}
	b := h.start(t, sandbox.Options{Secrets: vault})
	fetch := fmt.Sprintf(`{"session":"s","code":"import urllib.request as u\ntry: print(u.urlopen('http://%s/', timeout=60).read())\nexcept Exception as e: print(e)"}`, addr)
	job := codeJob(toolNamed(t, "run_python"), fetch)
	job.Egress = []string{addr}
	for i := range 3 { // the way is open anew in each call, also after a rest
		for deadline := time.Now().Add(3 * time.Minute); i == 2; time.Sleep(50 * time.Millisecond) {
			list, _, err := b.List(t.Context())
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("it does not rest: %v, %v", list, err)
			}
			if len(list) == 0 {
				break
			}
		}
		s, err := ask(t, b, job)
		c, _ := s.StructuredContent["connections"].([]any)
		if err != nil || s.StructuredContent["stdout"] != "b'hello'\n" || len(c) != 1 || hits != i+1 {
			t.Fatalf("%+v, %v, %d hits", s, err, hits)
		}
	}
	secret := job
	secret.Tool.Manifest.Secrets = []sallyport.SecretGrant{{Name: "k", Env: "K"}}
	for want, j := range map[string]sallyport.Job{
		"network": codeJob(job.Tool, fetch), "profile": func() sallyport.Job { o := job; o.Profile = "p"; return o }(), "secrets": secret,
	} {
		if _, err := ask(t, b, j); sallyport.CodeOf(err) != sallyport.Conflict || !strings.Contains(err.Error(), "another "+want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	secret.Args = json.RawMessage(`{"session":"t","code":"import os; print(os.environ['K'], 'K' in globals())"}`)
	if s, err := ask(t, b, secret); err != nil || s.StructuredContent["stdout"] != "[masked: secret k] False\n" {
		t.Errorf("%+v, %v", s, err)
	}
	vault["t/k"] = "value-two"
	if _, err := ask(t, b, secret); sallyport.CodeOf(err) != sallyport.Conflict {
		t.Errorf("the secret was changed: %v", err)
	}
	silent := codeJob(job.Tool, strings.Replace(fetch, `"s"`, `"none"`, 1))
	if s, err := ask(t, b, silent); err != nil || !strings.Contains(fmt.Sprint(s.StructuredContent["egress_denied"]), addr) || hits != 3 {
		t.Errorf("without a way: %+v, %v, %d hits", s, err, hits)
	}
}

// Who wants to hear is told of output while the program runs; the result has all
// of it. What is given secrets is told of at its end only.
func TestOutputAsItComes(t *testing.T) {
	t.Parallel() // it waits most of the time
	b := newHost(t).start(t, sandbox.Options{Secrets: secrets{"t/k": "value-one"}})
	for _, tt := range []struct{ tool, args string }{
		{"run_python", `{"code":"import sys, time\nprint('one')\nprint('err', file=sys.stderr)\ntime.sleep(SECONDS)\nprint('two')"}`},
		{"run_python", `{"session":"s","code":"import sys, time\nprint('one')\nprint('err', file=sys.stderr)\ntime.sleep(SECONDS)\nprint('two')"}`},
		{"run_shell", `{"code":"echo one; echo err >&2; sleep SECONDS; echo two"}`},
		{"run_javascript", `{"session":"s","code":"console.log('one'); console.error('err'); setTimeout(() => console.log('two'), 1000 * SECONDS)"}`},
	} {
		first := ""
		await.Longer(time.Second, func(between time.Duration) bool {
			first = firstHeard(t, b, tt.tool, strings.ReplaceAll(tt.args, "SECONDS", fmt.Sprint(between.Seconds())))
			return first == "one"
		})
		if first != "one" {
			t.Errorf("%s %s: told first: %q", tt.tool, tt.args, first)
		}
	}
	job := codeJob(toolNamed(t, "run_shell"), `{"code":"echo $K"}`)
	job.Tool.Manifest.Secrets = []sallyport.SecretGrant{{Name: "k", Env: "K"}}
	job.Watched, job.Notify = true, func(n sallyport.Notice) { t.Errorf("told: %q", n.Output) }
	if _, err := ask(t, b, job); err != nil {
		t.Error(err)
	}
}

// firstHeard runs a program that says one, err and two, and returns what was first told
// of its output.
func firstHeard(t *testing.T, b *sandbox.Backend, tool, args string) (first string) {
	t.Helper()
	var mu sync.Mutex
	heard := map[string]string{}
	job := codeJob(toolNamed(t, tool), args)
	job.Limits.Timeout = 3 * await.Patience
	job.Watched, job.Notify = true, func(n sallyport.Notice) {
		mu.Lock()
		defer mu.Unlock()
		if first == "" && n.Stream == "stdout" {
			first = string(n.Output)
		}
		heard[n.Stream] += string(n.Output)
	}
	s, err := ask(t, b, job)
	if err != nil || s.StructuredContent["stdout"] != "one\ntwo\n" || heard["stdout"] != "one\ntwo\n" || heard["stderr"] != "err\n" {
		t.Errorf("%s %s: %+v, %v, heard %q", tool, args, s, err, heard)
	}
	return strings.TrimSpace(first)
}

// What a program leaves in the output folder is content: images by their bytes,
// not by their names.
func TestRichResults(t *testing.T) {
	b := newHost(t).start(t, sandbox.Options{Secrets: secrets{"t/k": "value-one"}})
	code := `import os
os.chdir(os.environ["SALLYPORT_OUTPUT"])
for name, b in {"plot.txt": b"\x89PNG\r\n\x1a\nrest", "a.jpg": b"\xff\xd8\xffrest", "g": b"GIF89arest", "w": b"RIFF\0\0\0\0WEBPrest",
    "fake.png": b"not an image", "t.csv": b"a,b\n", "z.bin": b"\x00\xff", "d.pdf": b"%PDF-1.7 \x00"}.items(): open(name, "wb").write(b)
open("huge", "wb").write(b"x" * (1 << 20))`
	args, err := json.Marshal(map[string]string{"code": code})
	if err != nil {
		t.Fatal(err)
	}
	job := codeJob(toolNamed(t, "run_python"), string(args))
	s, err := ask(t, b, job)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range s.Content {
		switch c.Type {
		case "image":
			got[c.MimeType] = string(c.Data)
		case "resource":
			got[c.Resource.URI[strings.LastIndexByte(c.Resource.URI, '/')+1:]] = c.Resource.MimeType + " " + c.Resource.Text + string(c.Resource.Blob)
		}
	}
	for at, want := range map[string]string{
		"image/png": "\x89PNG\r\n\x1a\nrest", "image/jpeg": "\xff\xd8\xffrest", "image/gif": "GIF89arest", "image/webp": "RIFF\x00\x00\x00\x00WEBPrest",
		"fake.png": "text/plain not an image", "t.csv": "text/plain a,b\n", "z.bin": "application/octet-stream \x00\xff", "d.pdf": "application/pdf %PDF-1.7 \x00",
	} {
		if got[at] != want {
			t.Errorf("%s: %q, want %q", at, got[at], want)
		}
	}
	if len(got) != 8 || !strings.Contains(fmt.Sprint(s.Content), "1 files were left out") || fmt.Sprint(s.StructuredContent["artifacts_left_out"]) != "[huge]" {
		t.Errorf("%d contents; %v, %v", len(got), s.StructuredContent["artifacts_left_out"], s.Content)
	}
	job = codeJob(toolNamed(t, "run_shell"), `{"code":"echo $K > $SALLYPORT_OUTPUT/k"}`)
	job.Tool.Manifest.Secrets = []sallyport.SecretGrant{{Name: "k", Env: "K"}}
	if s, err := ask(t, b, job); err != nil || strings.Contains(fmt.Sprint(s), "value-one") || fmt.Sprint(s.StructuredContent["artifacts_left_out"]) != "[k]" {
		t.Errorf("with a secret: %+v, %v", s, err)
	}
}

// The tool that looks after sessions writes and reads files piece by piece, as
// text or as bytes.
func TestSessionTool(t *testing.T) {
	b := newHost(t).start(t, sandbox.Options{})
	do := func(args string) (shown, error) { return ask(t, b, codeJob(toolNamed(t, "sandbox_session"), args)) }
	if _, err := ask(t, b, codeJob(toolNamed(t, "run_shell"), `{"session":"s","code":"true"}`)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args, structured, content string
		code                      sallyport.Code
	}{
		{`{"action":"put","session":"s","path":"a/t","content":"hello world"}`, "map[path:a/t size:11]", "", ""},
		{`{"action":"get","session":"s","path":"a/t"}`, "map[more:false next:11 path:a/t size:11]", "hello world", ""},
		{`{"action":"get","session":"s","path":"a/t","offset":6,"length":3}`, "map[more:true next:9 path:a/t size:11]", "wor", ""},
		{`{"action":"get","session":"s","path":"a/t","offset":99}`, "map[more:false next:99 path:a/t size:11]", "", ""},
		{`{"action":"put","session":"s","path":"p.png","content":"iVBORw0KGgoAAAA=","encoding":"base64"}`, "map[path:p.png size:11]", "", ""},
		{`{"action":"get","session":"s","path":"p.png"}`, "map[more:false next:11 path:p.png size:11]", "image/png", ""},
		{`{"action":"put","session":"s","path":"p","content":"???","encoding":"base64"}`, "", "", sallyport.Invalid},
		{`{"action":"get","session":"s","path":"../x"}`, "", "", sallyport.Invalid},
		{`{"action":"get","session":"s","path":"a"}`, "", "", sallyport.Invalid},
		{`{"action":"get","session":"s","path":"none"}`, "", "", sallyport.NotFound},
		{`{"action":"files","session":"../s"}`, "", "", sallyport.Invalid},
		{`{"action":"steal","session":"s"}`, "", "", sallyport.Invalid},
	} {
		s, err := do(tt.args)
		if sallyport.CodeOf(err) != tt.code && (err != nil || tt.code != "") {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.code)
			continue
		}
		if err == nil && (fmt.Sprint(s.StructuredContent) != tt.structured || !strings.Contains(fmt.Sprintf("%+v", s.Content), tt.content)) {
			t.Errorf("%s: %v %+v", tt.args, s.StructuredContent, s.Content)
		}
	}
}
