package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport/port"
)

// A scene is the processes that are measured: an echo upstream, a reverse
// proxy and a gateway, both in front of it, each on its own.
type scene struct {
	dir     string
	data    string
	self    []string
	procs   []*exec.Cmd
	targets []target
}

func start(ctx context.Context, o Options) (_ *scene, err error) {
	dir, err := os.MkdirTemp("", "sallyport-bench-")
	if err != nil {
		return nil, err
	}
	s := &scene{dir: dir, data: filepath.Join(dir, "data"), self: o.Self}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Out, "starting an echo upstream, a reverse proxy and a gateway …")
	_, upstream, err := s.spawn(ctx, "bench", "echo")
	if err != nil {
		return nil, err
	}
	proxy, front, err := s.spawn(ctx, "bench", "proxy", "--to", upstream)
	if err != nil {
		return nil, err
	}
	gateway, url, err := s.gateway(ctx, upstream+"/mcp")
	if err != nil {
		return nil, err
	}
	token, err := s.run(ctx, "token")
	if err != nil {
		return nil, err
	}
	token = strings.TrimSpace(token)
	s.targets = []target{
		{"direct", upstream + "/mcp", "", "echo", 0},
		{"proxy", front + "/mcp", "", "echo", proxy},
		{"governed read-only", url, token, "echo__echo", gateway},
		{"governed mutating", url, token, "echo__write", gateway},
	}
	return s, nil
}

func (s *scene) close() {
	for _, p := range slices.Backward(s.procs) {
		p.Process.Signal(os.Interrupt)
		done := make(chan struct{})
		go func() { _ = p.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			p.Process.Kill()
			<-done
		}
	}
	os.RemoveAll(s.dir)
}

// spawn starts one of our own commands that prints its address as one line.
func (s *scene) spawn(ctx context.Context, args ...string) (pid int, url string, err error) {
	cmd := exec.CommandContext(ctx, s.self[0], append(append([]string{}, s.self[1:]...), args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, "", err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, "", err
	}
	s.procs = append(s.procs, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	return cmd.Process.Pid, "http://" + strings.TrimSpace(line), err
}

const (
	readOnly = "server: echo\ntool: echo\nread_only: true\n"
	writes   = "server: echo\ntool: write\nrisk: high\n"
)

// gateway makes a data folder with the upstream in it and serves it.
func (s *scene) gateway(ctx context.Context, upstream string) (pid int, url string, err error) {
	if _, err := s.run(ctx, "init", "--json"); err != nil {
		return 0, "", err
	}
	addr, err := port.Free()
	if err != nil {
		return 0, "", err
	}
	for name, text := range map[string]string{
		"sallyport.yaml":  fmt.Sprintf("listen: %q\nservers:\n  echo: {url: %q}\nlimits: {rate: 1000000, burst: 1000000, concurrency: 1000}\n", addr, upstream),
		"tools/echo.yaml": readOnly, "tools/write.yaml": writes,
	} {
		if err := os.WriteFile(filepath.Join(s.data, name), []byte(text), 0o600); err != nil {
			return 0, "", err
		}
	}
	log, err := os.Create(filepath.Join(s.dir, "gateway.log"))
	if err != nil {
		return 0, "", err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, s.self[0], append(append([]string{}, s.self[1:]...), "serve", "--data", s.data)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return 0, "", err
	}
	s.procs = append(s.procs, cmd)
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		list, err := s.run(ctx, "tools", "list", "--json")
		if err == nil && strings.Contains(list, `"echo__write"`) && ready(ctx, "http://"+addr+"/readyz") {
			return cmd.Process.Pid, "http://" + addr + "/mcp", nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			text, _ := os.ReadFile(log.Name())
			return 0, "", fmt.Errorf("the gateway is not ready: %v\n%s", err, text)
		}
	}
}

func ready(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// run runs one of our own commands on the scene's data folder.
func (s *scene) run(ctx context.Context, args ...string) (string, error) {
	argv := append(append([]string{}, s.self...), args...)
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], "--data", s.data)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("sallyport %s: %w: %s%s", args[0], err, out, errs.String())
	}
	return string(out), err
}

// lives measures whole lives of trivial programs, as an operator's command
// meets them: from the request to the gateway to the sandbox being gone.
func (s *scene) lives(ctx context.Context, o Options) ([]Lives, error) {
	var all []Lives
	for _, p := range []struct {
		name string
		argv []string
	}{
		{"true", []string{"/bin/true"}},
		{"python3 -c 'print(1)'", []string{"python3", "-c", "print(1)"}},
	} {
		var took []time.Duration
		for range o.Lives {
			d, err := s.live(ctx, p.argv)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			took = append(took, d)
		}
		slices.Sort(took)
		all = append(all, Lives{p.name, len(took), millis(took[0]), millis(percentile(took, 0.5)), millis(percentile(took, 0.99))})
	}
	return all, nil
}

func (s *scene) live(ctx context.Context, argv []string) (time.Duration, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(s.data, "admin.sock"))
	}}}
	body, err := json.Marshal(map[string]any{"argv": argv})
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/api/v1/sandboxes", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	at := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var out struct {
		ExitCode int    `json:"exit_code"`
		ID       string `json:"sandbox_id"`
		Message  string `json:"message"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK || out.ID == "" || out.ExitCode != 0 {
		return 0, fmt.Errorf("%s: exit code %d: %s", resp.Status, out.ExitCode, out.Message)
	}
	return time.Since(at), nil
}
