package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/test/bearer"
	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/toolkit"
)

// envEcho makes the test binary the echo server.
const envEcho = "BENCH_ECHO"

func TestMain(m *testing.M) {
	if os.Getenv(envEcho) != "" {
		if err := echo(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if to := os.Getenv(envForward); to != "" {
		if err := forward(to); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	stage.Main(m)
}

type message struct {
	Text string `json:"text"`
}

// echo serves a tool written with the SDK, until its parent is gone.
func echo() error {
	s := toolkit.New("echo", "1")
	toolkit.Tool(s, "echo", "Returns its text.", func(_ context.Context, _ toolkit.Call, in message) (string, error) { return in.Text, nil })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // ends with the parent
		os.Exit(0)
	}()
	return (&http.Server{Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second}).Serve(l)
}

func startEcho(b *testing.B) string {
	cmd := exec.CommandContext(b.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), envEcho+"=1")
	cmd.Stderr = os.Stderr
	in, out := proc.Start(b, cmd)
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return "http://" + strings.TrimSpace(line)
}

func client(b *testing.B, url, token string) *mcp.ClientSession {
	c := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	s, err := c.Connect(b.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: bearer.Client(token)}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// BenchmarkSDK makes each call twice, straight to the echo server and through
// the gateway, in turn: what is worth keeping is the ratio.
func BenchmarkSDK(b *testing.B) {
	upstream := startEcho(b)
	g := stage.New(b)
	g.Write("sallyport.yaml", g.Config(fmt.Sprintf("servers:\n  echo: {url: %q}\nlimits: {rate: 100000, burst: 100000}\n", upstream)))
	g.Write("tools/echo.yaml", "server: echo\ntool: echo\nread_only: true\n")
	g.Start("echo")
	direct, governed := client(b, upstream, ""), client(b, g.URL+"/mcp", g.Token(""))
	text := strings.Repeat("one kilobyte of text. ", 45)
	call := func(s *mcp.ClientSession, tool string) time.Duration {
		at := time.Now()
		r, err := s.CallTool(b.Context(), &mcp.CallToolParams{Name: tool, Arguments: message{text}})
		took := time.Since(at)
		if err != nil || r.IsError {
			b.Fatal(err, r)
		}
		return took
	}
	for range 50 { // warm
		call(direct, "echo")
		call(governed, "echo__echo")
	}
	var d, v []time.Duration
	for b.Loop() {
		d, v = append(d, call(direct, "echo")), append(v, call(governed, "echo__echo"))
	}
	slices.Sort(d)
	slices.Sort(v)
	p50 := func(s []time.Duration) float64 { return float64(s[len(s)/2].Microseconds()) }
	b.ReportMetric(p50(d), "direct-p50-µs")
	b.ReportMetric(p50(v), "governed-p50-µs")
	b.ReportMetric((p50(v)-p50(d))/p50(d), "adds/direct")
}
