package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/npm"
	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/test/stage"
)

// A direct is the same server without a gateway before it.
type direct struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
	id  int
}

func newDirect(t *testing.T, n npm.Modules, pkg string, args ...string) *direct {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, n.Node, append([]string{n.Script(pkg)}, args...)...)
	in, out := proc.Start(t, cmd)
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	d := &direct{t: t, in: in, out: bufio.NewReader(out)}
	d.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}},"clientInfo":{"name":"direct","version":"1"}}`)
	d.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return d
}

func (d *direct) send(line string) {
	d.t.Helper()
	if _, err := io.WriteString(d.in, line+"\n"); err != nil {
		d.t.Fatal(err)
	}
}

// ask returns the result of a request.
func (d *direct) ask(method, params string) json.RawMessage {
	d.t.Helper()
	d.id++
	d.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, d.id, method, params))
	for {
		line, err := d.out.ReadBytes('\n')
		if err != nil {
			d.t.Fatal(err)
		}
		var m struct {
			ID     int
			Method string
			Result json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			d.t.Fatalf("%v in %s", err, line)
		}
		if m.ID == d.id && m.Method == "" {
			return m.Result
		}
	}
}

func toolNames(t *testing.T, result json.RawMessage) (names []string) {
	t.Helper()
	var r struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(result, &r); err != nil {
		t.Fatal(err)
	}
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// asking are the tools of server-everything that ask their client first. Those of
// this test cannot be asked; package matrix has clients that can.
var asking = []string{"get-roots-list", "trigger-elicitation-request", "trigger-sampling-request", "trigger-url-elicitation"}

// What every other tool of server-everything is called with.
var everything = map[string]string{
	"echo":                           `{"message":"héllo  \"quoted\" 𝄞"}`,
	"get-annotated-message":          `{"messageType":"error","includeImage":true}`,
	"get-env":                        `{}`,
	"get-resource-links":             `{"count":4}`,
	"get-resource-reference":         `{"resourceType":"Text","resourceId":7}`,
	"get-structured-content":         `{"location":"Chicago"}`,
	"get-sum":                        `{"a":0.1,"b":41.9}`,
	"get-tiny-image":                 `{}`,
	"gzip-file-as-resource":          `{"name":"a.gz","data":"data:text/plain,hello","outputType":"resource"}`,
	"simulate-research-query":        `{"topic":"doors"}`,
	"toggle-simulated-logging":       `{}`,
	"toggle-subscriber-updates":      `{}`,
	"trigger-long-running-operation": `{"duration":0.2,"steps":2}`,
}

// What differs from one call to the next, or from one connection to another.
var fleeting = regexp.MustCompile(`created at [^"]*|for session [^ ]+`)

// plain is a result without what the gateway adds, and without what is fleeting.
func plain(t *testing.T, result json.RawMessage) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(result))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%v in %.300s", err, result)
	}
	delete(m, "_meta")
	if m["resultType"] == "complete" {
		delete(m, "resultType")
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return fleeting.ReplaceAllString(string(b), "…")
}

func TestNpm(t *testing.T) {
	t.Parallel()
	n := npm.Find(t).Open(t)
	g := stage.New(t)
	dir := filepath.Join(stage.OpenDir(t), "files")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o777)); err != nil { //nolint:gosec // the server's own user writes there
		t.Fatal(err)
	}
	port := startEverything(t, n)
	memory := n.Server("server-memory")
	memory.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "graph.jsonl")}
	g.Write("sallyport.yaml", g.Config(roomy+stage.Servers(map[string]stage.Server{
		"every":  n.Server("server-everything", "stdio"),
		"web":    {URL: port + "/mcp"},
		"files":  n.Server("server-filesystem", dir),
		"memory": memory,
	})))
	g.Start("every", "web", "files", "memory")
	c := newRaw(t, g)
	for _, server := range []string{"every", "web"} {
		t.Run("Everything/"+server, func(t *testing.T) {
			useEverything(t, c, newDirect(t, n, "server-everything", "stdio"), server)
		})
	}
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		t.Run("Reading/"+version, func(t *testing.T) { readEverything(t, g, version) })
	}
	t.Run("Filesystem", func(t *testing.T) { useFilesystem(t, c, dir) })
	t.Run("Memory", func(t *testing.T) { useMemory(t, c) })
	t.Run("Inspector", func(t *testing.T) { useInspector(t, n, g) })
}

// startEverything runs the same server over streamable HTTP.
func startEverything(t *testing.T, n npm.Modules) (url string) {
	t.Helper()
	addr := stage.FreePort(t)
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.CommandContext(t.Context(), n.Node, n.Script("server-everything"), "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for until := time.Now().Add(stage.Patience); ; {
		resp, err := http.Get("http://" + addr + "/")
		if err == nil {
			resp.Body.Close()
			return "http://" + addr
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func useEverything(t *testing.T, c raw, d *direct, server string) {
	list, err := c.legacy(t).list()
	if err != nil {
		t.Fatal(err)
	}
	var mine []string
	for _, name := range toolNames(t, list) {
		if own, ok := strings.CutPrefix(name, server+"__"); ok {
			mine = append(mine, own)
		}
	}
	if want := toolNames(t, d.ask("tools/list", `{}`)); !slices.Equal(mine, want) {
		t.Errorf("listed are %v\ndirectly  %v", mine, want)
	}
	for _, name := range mine {
		if slices.Contains(asking, name) {
			if a := c.must(t, server+"__"+name, `{}`, ""); !a.IsError && !strings.Contains(a.Text, "no roots are currently configured") {
				t.Errorf("%s asked a client that cannot be asked: %s", name, a)
			}
			continue
		}
		args, known := everything[name]
		if !known {
			t.Errorf("%s: a tool that this test does not know", name)
			continue
		}
		a := c.must(t, server+"__"+name, args, "")
		if name == "get-env" {
			if !strings.Contains(a.Text, "PATH") || server == "every" && strings.Contains(a.Text, "SALLYPORT") {
				t.Errorf("get-env: %s", a)
			}
			continue
		}
		if name == "simulate-research-query" { // which it takes only as a task: the gateway's matter
			if a.IsError || !strings.Contains(a.Text, "# Research Report: doors") {
				t.Errorf("%s: %s", name, a)
			}
			continue
		}
		want := plain(t, d.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args)))
		got := ""
		if a.Result != nil { // addresses of resources are the gateway's
			got = strings.ReplaceAll(plain(t, a.Result), `"uri":"sallyport:`+server+"/", `"uri":"`)
		}
		if got != want {
			t.Errorf("%s: through the gateway %.1500s\ndirectly %.1500s", name, a, want)
		}
	}
}

// list returns all tools in one result; this session's era.
func (c raw) list() (json.RawMessage, error) {
	_, b, err := c.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, nil)
	if err != nil {
		return nil, err
	}
	a, err := parse(b)
	if err == nil && a.Error != nil {
		err = a.Error
	}
	return a.Result, err
}

func useFilesystem(t *testing.T, c raw, dir string) {
	path := filepath.Join(dir, "a b.txt")
	call := func(tool, args string) answer {
		a := c.must(t, "files__"+tool, args, "")
		if a.IsError || a.Error != nil {
			t.Errorf("%s: %s", tool, a)
		}
		return a
	}
	call("write_file", `{"path":`+str(path)+`,"content":"héllo\n"}`)
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil || st.Uid == 0 || st.Uid == gatewayUID {
		t.Errorf("the file belongs to uid %d (%v), not to a user of the server's own", st.Uid, err)
	}
	if a := call("read_text_file", `{"path":`+str(path)+`}`); a.Text != "héllo\n" {
		t.Errorf("read: %s", a)
	}
	if a := call("list_directory", `{"path":`+str(dir)+`}`); !strings.Contains(a.Text, "[FILE] a b.txt") {
		t.Errorf("list: %s", a)
	}
	if a := c.must(t, "files__read_text_file", `{"path":"/etc/passwd"}`, ""); !a.IsError {
		t.Errorf("outside its folder: %s", a)
	}
}

func useMemory(t *testing.T, c raw) {
	a := c.must(t, "memory__create_entities", `{"entities":[{"name":"door","entityType":"thing","observations":["it is shut"]}]}`, "")
	if a.IsError || a.Error != nil {
		t.Errorf("create: %s", a)
	}
	if a := c.must(t, "memory__read_graph", `{}`, ""); !strings.Contains(a.Text, "it is shut") {
		t.Errorf("read: %s", a)
	}
}

func useInspector(t *testing.T, n npm.Modules, g *stage.Gateway) {
	g.In(t)
	token := g.Token("")
	inspect := func(args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 2*stage.Patience)
		defer cancel()
		args = append([]string{n.Path(".bin", "mcp-inspector"), "--cli", g.URL + "/mcp", "--transport", "http", "--header", "Authorization: Bearer " + token}, args...)
		cmd := exec.CommandContext(ctx, n.Node, args...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "PATH="+filepath.Dir(n.Node)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("inspector %v: %v\n%s", args[8:], err, out)
		}
		return string(out)
	}
	if out := inspect("--method", "tools/list"); !strings.Contains(out, `"every__echo"`) || !strings.Contains(out, `"run_python"`) {
		t.Errorf("tools/list: %s", out)
	}
	if out := inspect("--method", "tools/call", "--tool-name", "every__echo", "--tool-arg", "message=through the gateway"); !strings.Contains(out, "Echo: through the gateway") {
		t.Errorf("tools/call: %s", out)
	}
	if out := inspect("--method", "tools/call", "--tool-name", "run_python", "--tool-arg", "code=print(6*7)"); !strings.Contains(out, "42") {
		t.Errorf("tools/call run_python: %s", out)
	}
}

// gatewayUID is the gateway's own where there is no user "sallyport".
const gatewayUID = 64550
