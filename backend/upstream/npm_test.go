package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/catalog/suspect"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/test/npm"
	"sallyport.dev/sallyport/test/stage"
)

func npmOptions() upstream.Options {
	o := options()
	o.MaxMessage, o.Budget, o.Connect = 8<<20, 60*time.Second, 60*time.Second
	return o
}

// listed waits for the names of a server's tools.
func listed(t *testing.T, b *upstream.Backend, name string) map[string]bool {
	t.Helper()
	l, err := b.Tools(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, raw := range l.Tools {
		var def struct{ Name string }
		if err := json.Unmarshal(raw, &def); err != nil {
			t.Error(err)
		}
		names[def.Name] = true
		own := func(string) bool { return true }
		for _, f := range (suspect.Judge{}).Look(def.Name, raw, l.Instructions, own) { // TO-02: a well-known server waits for nobody
			if f.Grave {
				t.Errorf("%s: %s", def.Name, f)
			}
		}
	}
	return names
}

// everything exercises the reference server, however it is reached.
func everything(t *testing.T, b *upstream.Backend) {
	t.Helper()
	names := listed(t, b, "every")
	if len(names) < 10 || !names["echo"] {
		t.Errorf("tools = %v", names)
	}
	if got := mustText(t, b, "every", "echo", `{"message":"héllo"}`); got != "Echo: héllo" {
		t.Errorf("echo: %q", got)
	}
	if got := mustText(t, b, "every", "get-sum", `{"a":2,"b":40}`); !strings.Contains(got, "42") {
		t.Errorf("get-sum: %q", got)
	}
	out, err := call(t, b, "every", "get-tiny-image", `{}`)
	if err != nil || !strings.Contains(string(out.Content), `"image"`) {
		t.Errorf("get-tiny-image: %.200s, %v", out.Content, err)
	}
	out, err = call(t, b, "every", "get-structured-content", `{"location":"Chicago"}`)
	if err != nil || out.IsError || !strings.Contains(string(out.Content), `"structuredContent":{`) {
		t.Errorf("get-structured-content: %.200s, %v", out.Content, err)
	}
	job := backendtest.Job(tool("every", "trigger-long-running-operation"), `{"duration":1,"steps":4}`)
	var progress []string
	job.Notify = func(n sallyport.Notice) { progress = append(progress, n.Method) }
	if out, err := b.Run(t.Context(), job); err != nil || out.IsError || len(progress) == 0 || progress[0] != "notifications/progress" {
		t.Errorf("long operation: %.200s, %v, progress %v", out.Content, err, progress)
	}
	out, err = call(t, b, "every", "echo", `{"message":5}`)
	if err == nil && !out.IsError {
		t.Errorf("echo of a number: %.200s", out.Content)
	}
	out, err = call(t, b, "every", "no-such-tool", `{}`)
	if err == nil && !out.IsError {
		t.Errorf("unknown tool: %.200s", out.Content)
	}
	research(t, b)
	if st := status(t, b, "every"); st.Era != "legacy" || st.Version != "2025-11-25" {
		t.Errorf("status = %+v", st)
	}
}

// research calls the tool that this server takes only as a task, several times at once:
// each hears of its own stages, and is asked its own question.
func research(t *testing.T, b *upstream.Backend) {
	t.Helper()
	var wg sync.WaitGroup
	for _, topic := range []string{"doors", "gates"} {
		job := backendtest.Job(tool("every", "simulate-research-query"), `{"topic":"`+topic+`","ambiguous":true}`)
		job.Tool.ByTask, job.Can = true, sallyport.Abilities{Form: true}
		var mu sync.Mutex
		said, asked := "", ""
		job.Notify = func(n sallyport.Notice) {
			mu.Lock()
			defer mu.Unlock()
			said += string(n.Params)
		}
		job.Ask = func(_ context.Context, q []sallyport.Question) ([]sallyport.Answer, error) {
			mu.Lock()
			defer mu.Unlock()
			asked += string(q[0].Params)
			return []sallyport.Answer{{Result: []byte(`{"action":"accept","content":{"interpretation":"historical ` + topic + `"}}`)}}, nil
		}
		wg.Go(func() {
			out, err := b.Run(t.Context(), job)
			got, _ := backendtest.Text(out)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || out.IsError || !strings.Contains(got, "historical "+topic) || strings.Contains(string(out.Content), "related-task") {
				t.Errorf("research: %.300s, %v", got, err)
			}
			if !strings.Contains(said, "Gathering sources") || strings.Count(asked, "requestedSchema") != 1 || !strings.Contains(asked, topic) {
				t.Errorf("research about %s: said %s, asked %s", topic, said, asked)
			}
		})
	}
	wg.Wait()
}

func TestNpmEverythingStdio(t *testing.T) {
	t.Parallel()
	modules := npm.Find(t)
	b := open(t, npmOptions(), upstream.Config{Name: "every", Argv: []string{modules.Node, modules.Script("server-everything"), "stdio"}, Isolation: "none"})
	everything(t, b)
	start := time.Now()
	_ = b.Close()
	if took := time.Since(start); took > await.Patience {
		t.Errorf("Close took %v", took)
	}
}

// freePort is one on which nothing listens just now, nor by chance in a moment.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(stage.FreePort(t))
	return port
}

func TestNpmEverythingHTTP(t *testing.T) {
	t.Parallel()
	modules := npm.Find(t)
	port := freePort(t)
	run := func() (stop func()) {
		cmd := exec.CommandContext(t.Context(), modules.Node, modules.Script("server-everything"), "streamableHttp")
		cmd.Env = append(os.Environ(), "PORT="+port)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	stop := run()
	b := open(t, npmOptions(), upstream.Config{Name: "every", URL: fmt.Sprintf("http://127.0.0.1:%s/mcp", port)})
	everything(t, b)

	// FO-10 with a real server: it restarts and knows its sessions no more.
	stop()
	// The first call may still meet the connection that the server left
	// behind, and then its outcome is not known; from then on calls wait.
	await.That(t, "a call waits for a server that is down", func() bool {
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := b.Run(short, backendtest.Job(tool("every", "echo"), `{"message":"down"}`))
		return errors.Is(err, context.DeadlineExceeded)
	})
	stop = run()
	defer stop()
	await.That(t, "it is up again", func() bool {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	if got := mustText(t, b, "every", "echo", `{"message":"again"}`); got != "Echo: again" {
		t.Errorf("after the restart: %q", got)
	}
}

func TestNpmFilesystem(t *testing.T) {
	t.Parallel()
	modules := npm.Find(t)
	root, other := t.TempDir(), t.TempDir()
	b := open(t, npmOptions(), upstream.Config{Name: "fs", Argv: []string{modules.Node, modules.Script("server-filesystem"), root}, Isolation: "none"})
	if names := listed(t, b, "fs"); !names["write_file"] || !names["read_text_file"] {
		t.Errorf("tools = %v", names)
	}
	args, _ := json.Marshal(map[string]string{"path": filepath.Join(root, "a b.txt"), "content": "héllo\n"})
	mustText(t, b, "fs", "write_file", string(args))
	if text, err := os.ReadFile(filepath.Join(root, "a b.txt")); err != nil || string(text) != "héllo\n" {
		t.Errorf("file = %q, %v", text, err)
	}
	args, _ = json.Marshal(map[string]string{"path": filepath.Join(other, "x")})
	if out, err := call(t, b, "fs", "read_text_file", string(args)); err == nil && !out.IsError {
		t.Errorf("it read outside its root: %s", out.Content)
	}
}

func TestNpmMemory(t *testing.T) {
	t.Parallel()
	modules := npm.Find(t)
	c := upstream.Config{Name: "mem", Argv: []string{modules.Node, modules.Script("server-memory")}, Isolation: "none"}
	c.Env = []string{"MEMORY_FILE_PATH=" + filepath.Join(t.TempDir(), "graph.jsonl")}
	b := open(t, npmOptions(), c)
	mustText(t, b, "mem", "create_entities", `{"entities":[{"name":"door","entityType":"thing","observations":["it is shut"]}]}`)
	if got := mustText(t, b, "mem", "read_graph", `{}`); !strings.Contains(got, "it is shut") {
		t.Errorf("read_graph: %q", got)
	}
}
