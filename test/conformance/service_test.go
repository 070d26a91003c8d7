package conformance

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/npm"
	"sallyport.dev/sallyport/test/stage"
)

// Servers that strangers wrote, as `servers add` installs and runs them.

// serviced is a gateway whose npm asks a registry of the test's own.
func serviced(t *testing.T, more string) (*stage.Gateway, *registry) {
	t.Helper()
	r := newRegistry(t, npm.Find(t).Dir)
	g := stage.New(t)
	g.Env = append(g.Env, r.env())
	g.Write("sallyport.yaml", g.Config(roomy+more))
	return g, r
}

func (g gateway) add(name string, args ...string) {
	g.t.Helper()
	r := g.Must("", append([]string{"servers", "add", name}, args...)...)
	if !strings.Contains(r.Out, "ready") || !strings.Contains(r.Out, "gvisor") || !strings.Contains(r.Err, "installed: @modelcontextprotocol/") {
		g.t.Fatalf("%s: %s", name, r)
	}
}

// A gateway of a test.
type gateway struct {
	*stage.Gateway
	t *testing.T
}

func (g gateway) call(tool, args string) stage.Said { return g.Run("", "call", tool, args) }

// sandboxes are the services that the sandbox host has now, by server.
func (g gateway) sandboxes() map[string]int {
	g.t.Helper()
	var list struct {
		Sandboxes []struct {
			CallID string `json:"call_id"`
		} `json:"sandboxes"`
	}
	r := g.Must("", "sandbox", "ps", "--json")
	if err := json.Unmarshal([]byte(r.Out), &list); err != nil {
		g.t.Fatalf("%v: %s", err, r)
	}
	out := map[string]int{}
	for _, s := range list.Sandboxes {
		out[s.CallID]++
	}
	return out
}

func TestReferenceServersInGVisor(t *testing.T) {
	t.Parallel()
	made, registry := serviced(t, "")
	g := gateway{made, t}
	readable, writable := stage.OpenDir(t), stage.OpenDir(t)
	for _, path := range []string{readable, writable} { // only the mount keeps the first from being written
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(readable, "in.txt"), []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	g.Start()
	g.add("files", "--root", readable, "--root", writable+":rw", "--", "npx", "-y", "@modelcontextprotocol/server-filesystem", readable, writable)
	g.add("memory", "--env", "MEMORY_FILE_PATH=/home/agent/graph.json", "--", "npx", "-y", "@modelcontextprotocol/server-memory")
	if len(registry.asked) < 3 {
		t.Fatalf("control: the registry was asked for %q", registry.asked)
	}
	if r := g.call("files__read_text_file", fmt.Sprintf(`{"path":%q}`, filepath.Join(readable, "in.txt"))); r.Out != "of the host\n" && r.Out != "of the host" {
		t.Errorf("reading: %s", r)
	}
	g.call("files__write_file", fmt.Sprintf(`{"path":%q,"content":"x"}`, filepath.Join(readable, "out.txt")))
	if _, err := os.Stat(filepath.Join(readable, "out.txt")); err == nil {
		t.Error("it wrote into a root that is read-only")
	}
	if r := g.call("files__write_file", fmt.Sprintf(`{"path":%q,"content":"x"}`, filepath.Join(writable, "out.txt"))); r.Code != 0 {
		t.Errorf("control: writing where it may: %s", r)
	}
	if b, err := os.ReadFile(filepath.Join(writable, "out.txt")); err != nil || string(b) != "x" {
		t.Errorf("control: %q %v", b, err)
	}
	if r := g.call("memory__create_entities", `{"entities":[{"name":"kept","entityType":"t","observations":["o"]}]}`); r.Code != 0 {
		t.Errorf("remembering: %s", r)
	}
	asked := len(registry.asked)
	g.Stop()
	g.Start("files", "memory")
	if r := g.call("memory__read_graph", "{}"); !strings.Contains(r.Out, `"kept"`) {
		t.Errorf("its own file did not survive: %s", r)
	}
	if len(registry.asked) != asked {
		t.Error("a start installed a package again")
	}
	spoilPackage(t, g, "memory")
}

// spoilPackage changes an installed package: the server does not start any more
// until it is installed afresh.
func spoilPackage(t *testing.T, g gateway, name string) {
	t.Helper()
	g.Stop()
	image := filepath.Join(g.Homes, "packages", name, "package.erofs")
	f, err := os.OpenFile(image, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("changed"), 40_000); err != nil {
		t.Fatal(err)
	}
	f.Close()
	g.Start()
	g.Eventually(stage.Patience, "the changed package is refused", func() error {
		if r := g.Must("", "servers", "list"); !strings.Contains(r.Out, "is not what was installed") {
			return fmt.Errorf("%s", r.Out)
		}
		return nil
	})
	if r := g.Must("", "servers", "update", name); !strings.Contains(r.Out, "ready") {
		t.Errorf("updated: %s", r)
	}
}

// Whatever calls come, a server is one sandbox, in which so many run at once;
// the rest waits in a line with a bound. It goes when nobody calls.
func TestFO19OneSandboxForAllCalls(t *testing.T) {
	t.Parallel()
	made, _ := serviced(t, "servers: {everything: {command: npx, args: [-y, '@modelcontextprotocol/server-everything'], calls: 4, queue: 8, idle: 4s}}\n")
	g := gateway{made, t}
	for _, tool := range []string{"echo", "trigger-long-running-operation"} {
		g.Write("tools/"+tool+".yaml", "server: everything\ntool: "+tool+"\nread_only: true\n")
	}
	g.Start("everything")
	const service = "server everything"
	most := 0
	look := func() {
		most = max(most, g.sandboxes()[service])
	}
	c := newRaw(t, g.Gateway).legacy(t)
	for i := range 200 {
		if a, err := c.call(fmt.Sprint(i), "everything__echo", `{"message":"hi"}`, ""); err != nil || a.Text != "Echo: hi" {
			t.Fatalf("call %d: %v %v", i, a, err)
		}
		if i%50 == 0 {
			look()
		}
	}
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		came = map[string]int{}
	)
	for i := range 50 {
		wait.Go(func() {
			a, err := c.call(fmt.Sprint(1000+i), "everything__trigger-long-running-operation", `{"duration":1,"steps":1}`, "")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				came[err.Error()]++
			case a.Code == "rate_limited" && strings.Contains(string(a.Structured), `"retry_after"`):
				came["come back"]++
			case a.IsError || a.Error != nil:
				came[a.String()]++
			default:
				came["done"]++
			}
		})
	}
	look()
	wait.Wait()
	look()
	if most != 1 {
		t.Errorf("%d sandboxes at once for one server", most)
	}
	if came["done"] < 12 || came["come back"] == 0 || came["done"]+came["come back"] != 50 {
		t.Errorf("%v, want at least 12 done and the rest told to come back", came)
	}
	g.Eventually(stage.Patience, "the idle server is gone", func() error {
		if n := g.sandboxes()[service]; n != 0 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	if a, err := c.call("9999", "everything__echo", `{"message":"hi"}`, ""); err != nil || a.Text != "Echo: hi" {
		t.Errorf("the next call does not start it again: %v %v", a, err)
	}
}

// spy is a server that looks and reaches where it is told.
const spy = `
const rl = require('readline').createInterface({input: process.stdin});
const fs = require('fs'), net = require('net');
const say = (id, result) => console.log(JSON.stringify({jsonrpc: '2.0', id, result}));
const text = (id, s) => say(id, {content: [{type: 'text', text: s}]});
const schema = {type: 'object', properties: {path: {type: 'string', description: 'p'}, port: {type: 'integer', description: 'p'}}};
rl.on('line', l => {
  const m = JSON.parse(l);
  if (m.method === 'initialize') say(m.id, {protocolVersion: '2025-06-18', capabilities: {tools: {}}, serverInfo: {name: 'spy', version: '1'}});
  else if (m.method === 'tools/list') say(m.id, {tools: ['look', 'reach', 'fetch'].map(name => ({name, description: 'a tool', inputSchema: schema}))});
  else if (m.method === 'tools/call') {
    const a = m.params.arguments;
    if (m.params.name === 'look') { try { text(m.id, fs.readFileSync(a.path, 'utf8')); } catch (e) { text(m.id, 'NO ' + e.code); } }
    else if (m.params.name === 'reach') {
      const s = net.connect(a.port, '127.0.0.1');
      s.on('connect', () => { text(m.id, 'REACHED'); s.destroy(); });
      s.on('error', e => text(m.id, 'NO ' + e.code));
    } else {
      const [host, port] = process.env.HTTP_PROXY.replace('http://', '').split(':');
      const s = net.connect(+port, host);
      let got = '';
      s.on('data', d => got += d); s.on('error', e => text(m.id, 'NO ' + e.code));
      s.on('close', () => text(m.id, got));
      s.write('GET http://127.0.0.1:' + a.port + '/ HTTP/1.1\r\nHost: 127.0.0.1:' + a.port + '\r\nConnection: close\r\n\r\n');
    }
  } else if (m.id !== undefined) console.log(JSON.stringify({jsonrpc: '2.0', id: m.id, error: {code: -32601, message: 'no'}}));
});
`

// No server but one without isolation reads the data folder, and one in a
// sandbox reaches what its list says and nothing else.
func TestServersSeeAndReachWhatTheyMay(t *testing.T) {
	t.Parallel()
	n := npm.Find(t).Open(t)
	dir := stage.OpenDir(t)
	if err := os.WriteFile(filepath.Join(dir, "spy.js"), []byte(spy), 0o644); err != nil {
		t.Fatal(err)
	}
	ports := [2]string{listener(t, "listed"), listener(t, "unheard")}
	made := stage.New(t)
	g := gateway{made, t}
	server := func(isolation, command, more string) string {
		return fmt.Sprintf("  %s: {isolation: %s, command: %q, args: [%q]%s}\n", isolation, isolation, command, filepath.Join(dir, "spy.js"), more)
	}
	confined := fmt.Sprintf(", roots: [{path: %q}], egress: ['127.0.0.1:%s']", dir, ports[0])
	g.Write("sallyport.yaml", g.Config("egress: {private: [127.0.0.0/8]}\nservers:\n"+server("none", n.Node, "")+server("uid", n.Node, "")+server("gvisor", "node", confined)))
	canary := filepath.Join(g.Data, "canary")
	if err := os.WriteFile(canary, []byte("CANARY"), 0o600); err != nil { // serve gives it to the gateway's user
		t.Fatal(err)
	}
	g.Start("none", "uid", "gvisor")
	look := func(server, path string) string {
		return g.call(server+"__look", fmt.Sprintf(`{"path":%q}`, path)).Out
	}
	if got := look("none", canary); !strings.Contains(got, "CANARY") {
		t.Fatalf("control: a server without isolation reads the data folder: %q", got)
	}
	for _, s := range []string{"uid", "gvisor"} {
		for _, path := range []string{canary, filepath.Join(g.Data, "keys"), "/run/sallyport/data/canary", "/proc/1/root" + canary, dir + "/.." + canary} {
			if got := look(s, path); !strings.HasPrefix(got, "NO ") {
				t.Errorf("%s reads %s: %q", s, path, got)
			}
		}
		if got := look(s, filepath.Join(dir, "spy.js")); !strings.Contains(got, "readline") {
			t.Errorf("control: %s reads its own program: %q", s, got)
		}
	}
	if got := look("gvisor", "/etc/hostname"); !strings.HasPrefix(got, "sandbox") {
		t.Errorf("gvisor sees the host's /etc: %q", got)
	}
	reachWhatTheyMay(g, ports)
}

func reachWhatTheyMay(g gateway, ports [2]string) {
	g.t.Helper()
	ask := func(tool, port string) string { return g.call(tool, `{"port":`+port+`}`).Out }
	for _, port := range ports {
		if got := ask("uid__reach", port); !strings.Contains(got, "REACHED") {
			g.t.Errorf("control: a server as a uid reaches port %s: %q", port, got)
		}
		if got := ask("gvisor__reach", port); !strings.HasPrefix(got, "NO ") {
			g.t.Errorf("gvisor reaches port %s past the broker: %q", port, got)
		}
	}
	if got := ask("gvisor__fetch", ports[0]); !strings.Contains(got, "listed") {
		g.t.Errorf("gvisor does not reach what its list says: %q", got)
	}
	if got := ask("gvisor__fetch", ports[1]); !strings.Contains(got, "not_listed") || strings.Contains(got, "unheard") {
		g.t.Errorf("gvisor reaches what its list does not say: %q", got)
	}
	var doctor struct {
		Findings []struct{ What, Said string } `json:"findings"`
	}
	r := g.Run("", "doctor", "--json")
	if err := json.Unmarshal([]byte(r.Out), &doctor); err != nil {
		g.t.Fatal(err)
	}
	said := map[string]string{}
	for _, f := range doctor.Findings {
		said[f.What] = f.Said
	}
	for server, want := range map[string]string{"none": "isolation none", "uid": "isolation uid", "gvisor": "isolation gvisor"} {
		if !strings.Contains(said["server "+server], want) {
			g.t.Errorf("doctor says of %s: %q", server, said["server "+server])
		}
	}
}

// listener answers with a word on a port of the loopback interface.
func listener(t *testing.T, word string) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(stage.Patience))
				b := make([]byte, 4096)
				if n, _ := c.Read(b); n > 0 {
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(word), word)
				}
			}()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}
