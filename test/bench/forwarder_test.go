package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/wire"
)

// envForward makes the test binary a forwarder to the address that it holds.
const envForward = "BENCH_FORWARD"

// forward is the least that can stand between a client and a server of MCP: it
// reads the envelope, holds three headers against it, and passes bytes on.
func forward(to string) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // ends with the parent
		os.Exit(0)
	}()
	return (&http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
		if err == nil {
			err = consistent(r.Header, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, to, bytes.NewReader(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		for _, name := range []string{"Content-Type", "Accept", wire.HeaderProtocolVersion, wire.HeaderMethod, wire.HeaderName} {
			req.Header[name] = r.Header[name]
		}
		resp, err := client.Do(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.Header()["Content-Type"] = resp.Header["Content-Type"]
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})}).Serve(l)
}

func consistent(h http.Header, body []byte) error {
	m, err := wire.ParseMessage(body)
	if err != nil {
		return err
	}
	version, _ := wire.String(wire.Path(m.Params, "_meta", wire.MetaProtocolVersion))
	name, _ := wire.String(wire.Member(m.Params, "name"))
	if h.Get(wire.HeaderMethod) != m.Method || h.Get(wire.HeaderProtocolVersion) != version || h.Get(wire.HeaderName) != name {
		return errors.New("headers and body differ")
	}
	return nil
}

// spawn starts a program that prints its address as one line.
func spawn(b testing.TB, env string, argv ...string) (pid int, url string) {
	cmd := exec.CommandContext(b.Context(), argv[0], argv[1:]...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env), os.Stderr
	in, out := proc.Start(b, cmd)
	b.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return cmd.Process.Pid, "http://" + strings.TrimSpace(line)
}

// shot is one call over plain HTTP.
func shot(b testing.TB, c *http.Client, url, token, tool string) {
	text, err := json.Marshal(strings.Repeat("one kilobyte of text. ", 45))
	if err != nil {
		b.Fatal(err)
	}
	body := wire.AppendRequest(nil, json.RawMessage("1"), "tools/call", fmt.Appendf(nil, `{"name":%q,"arguments":{"message":%s},"_meta":{%q:%q,%q:{}}}`,
		tool, text, wire.MetaProtocolVersion, wire.Version2026_07_28, wire.MetaClientCapabilities))
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": wire.TypeJSON, "Accept": wire.TypeJSON + ", " + wire.TypeSSE, "Authorization": "Bearer " + token,
		wire.HeaderProtocolVersion: wire.Version2026_07_28, wire.HeaderMethod: "tools/call", wire.HeaderName: tool} {
		req.Header.Set(name, value)
	}
	resp, err := c.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(got, text) {
		b.Fatal(resp.Status, err, string(got))
	}
}

// used is the CPU time of a process, in clock ticks of 10 ms.
func used(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err := errors.Join(err1, err2); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// BenchmarkForwarder compares the CPU time of a governed, read-only call with that
// of a bare forwarder, in turns on one server: what is worth keeping is the ratio.
// It needs some thousand calls: -benchtime 10000x.
func BenchmarkForwarder(b *testing.B) {
	_, upstream := spawn(b, "", stage.Program(b, "sallyport"), "bench", "echo")
	bare, front := spawn(b, envForward+"="+upstream+"/mcp", "/proc/self/exe")
	g := stage.New(b)
	g.Write("sallyport.yaml", g.Config(fmt.Sprintf("servers:\n  echo: {url: %q}\nlimits: {rate: 100000, burst: 100000, bytes: 8GiB}\n", upstream+"/mcp")))
	g.Write("tools/echo.yaml", "server: echo\ntool: echo\nread_only: true\n")
	g.Start("echo")
	token := g.Token("")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	ways := []struct {
		pid              int
		url, token, tool string
		cpu              time.Duration
	}{{bare, front, "", "echo", 0}, {g.PID(), g.URL + "/mcp", token, "echo__echo", 0}}
	for i := range ways {
		for range 500 { // warm
			shot(b, client, ways[i].url, ways[i].token, ways[i].tool)
		}
	}
	const turn = 100
	calls := 0
	for b.Loop() {
		if calls++; calls%turn != 0 {
			continue
		}
		for i := range ways {
			before := used(b, ways[i].pid)
			for range turn {
				shot(b, client, ways[i].url, ways[i].token, ways[i].tool)
			}
			ways[i].cpu += used(b, ways[i].pid) - before
		}
	}
	n := float64(calls / turn * turn)
	if n == 0 {
		b.Skip("too few calls: run it with -benchtime 10000x")
	}
	b.ReportMetric(float64(ways[0].cpu.Microseconds())/n, "forwarder-µs")
	b.ReportMetric(float64(ways[1].cpu.Microseconds())/n, "governed-µs")
	b.ReportMetric(float64(ways[1].cpu)/float64(ways[0].cpu), "governed/forwarder")
}
