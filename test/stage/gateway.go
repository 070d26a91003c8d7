package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Gateway is a data folder and the programs that serve it.
type Gateway struct {
	Data     string   // data folder
	Homes    string   // folder of the servers' homes
	Listen   string   // HOST:PORT
	URL      string   // http://HOST:PORT
	Password string   // of the admin "admin"
	Env      []string // beyond the test's own, for serve

	t     testing.TB
	store string // of the configuration, "" = its default
	cmd   *exec.Cmd
	log   string        // file with what serve printed
	end   chan struct{} // closed when serve has ended
}

// New makes a data folder, whose gateway will listen on a free port. It does
// not start it. Everything is removed at the end of the test.
func New(t testing.TB) *Gateway {
	t.Helper()
	return prepare(t).found("")
}

// NewOn is New with the state in the PostgreSQL database of url, which is empty.
func NewOn(t testing.TB, url string) *Gateway {
	t.Helper()
	return prepare(t).found(url)
}

// Join makes the data folder of one more gateway on g's database.
func (g *Gateway) Join(t testing.TB) *Gateway {
	t.Helper()
	more := prepare(t)
	more.store, more.Password = g.store, g.Password
	more.Must("", "init", "--join", g.Data)
	more.Write("sallyport.yaml", more.Config(""))
	return more
}

// prepare says where a gateway will be.
func prepare(t testing.TB) *Gateway {
	t.Helper()
	if os.Geteuid() != 0 {
		Absent(t, "needs root: serve starts the sandbox host and then gives its privileges up")
	}
	dir := OpenDir(t)
	g := &Gateway{t: t, Data: filepath.Join(dir, "data"), Homes: filepath.Join(dir, "homes"), Listen: FreePort(t), log: filepath.Join(dir, "serve.log")}
	g.URL = "http://" + g.Listen
	t.Cleanup(func() {
		g.Kill()
		if t.Failed() {
			t.Logf("serve printed:\n%s", g.Log())
		}
	})
	return g
}

// found makes the data folder, and what belongs into the database.
func (g *Gateway) found(store string) *Gateway {
	g.t.Helper()
	g.store = store
	args := []string{"init", "--json"}
	if store != "" {
		args = append(args, "--store", store)
	}
	var made struct{ Admin struct{ Password string } }
	if err := json.Unmarshal([]byte(g.Must("", args...).Out), &made); err != nil {
		g.t.Fatal(err)
	}
	g.Password = made.Admin.Password
	g.Write("sallyport.yaml", g.Config(""))
	return g
}

// In makes failures count for a subtest, until that ends. Subtests that share a
// gateway do not run in parallel.
func (g *Gateway) In(t testing.TB) {
	old := g.t
	g.t = t
	t.Cleanup(func() { g.t = old })
}

// Config is a sallyport.yaml with the gateway's address and more.
func (g *Gateway) Config(more string) string {
	if g.store != "" {
		more = fmt.Sprintf("store: %q\n%s", g.store, more)
	}
	return fmt.Sprintf("listen: %q\n%s", g.Listen, more)
}

// Write writes a file of the data folder.
func (g *Gateway) Write(name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.Data, name), []byte(text), 0o644); err != nil {
		g.t.Fatal(err)
	}
}

// Command is one of the program's commands on this data folder, not started.
func (g *Gateway) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, Program(g.t, "sallyport"), append([]string{"--data", g.Data}, args...)...)
	cmd.Env = environ()
	return cmd
}

// Serve is the gateway on this data folder, not started.
func (g *Gateway) Serve(ctx context.Context) *exec.Cmd {
	cmd := g.Command(ctx, "serve", "--server-homes", g.Homes)
	cmd.Env = append(cmd.Env, g.Env...)
	return cmd
}

// Start serves the folder and returns when the gateway is ready and each of
// the named servers is, too.
func (g *Gateway) Start(servers ...string) {
	g.t.Helper()
	log, err := os.OpenFile(g.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	defer log.Close()
	g.cmd = g.Serve(context.Background())
	g.cmd.Stdout, g.cmd.Stderr = log, log
	if err := g.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.end = make(chan struct{})
	go func(cmd *exec.Cmd, end chan struct{}) {
		_ = cmd.Wait() // the status is in ProcessState
		close(end)
	}(g.cmd, g.end)
	g.Eventually(2*Patience, "the gateway is ready", func() error {
		select {
		case <-g.end:
			g.t.Fatalf("serve ended: %v\n%s", g.cmd.ProcessState, g.Log())
		default:
		}
		if status, body := g.Get("/readyz"); status != http.StatusOK {
			return fmt.Errorf("/readyz: %d %s", status, body)
		}
		return nil
	})
	for _, s := range servers {
		g.WaitServer(s)
	}
}

// WaitServer returns when a server is ready and its tools are listed.
func (g *Gateway) WaitServer(name string) {
	g.t.Helper()
	g.Eventually(3*time.Minute, "the server "+name+" is ready", func() error {
		var out struct {
			Servers []struct {
				Name, State, Error, Stderr string
				Tools                      int
			}
		}
		r := g.Run("", "servers", "list", "--json")
		if err := json.Unmarshal([]byte(r.Out), &out); err != nil {
			return fmt.Errorf("%v: %s", err, r)
		}
		for _, s := range out.Servers {
			if s.Name == name && s.State == "ready" && s.Tools > 0 {
				return nil
			}
		}
		return fmt.Errorf("%+v", out.Servers)
	})
}

// Patience is how long a test waits for what should take a moment.
const Patience = 90 * time.Second

// Eventually waits until ok returns nil.
func (g *Gateway) Eventually(within time.Duration, what string, ok func() error) {
	g.t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("not within %s: %s: %v", within, what, err)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// Get asks the gateway's TCP port, without credentials. Status 0 means that
// nobody answered.
func (g *Gateway) Get(path string) (status int, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, b.String()
}

// PID of the gateway.
func (g *Gateway) PID() int { return g.cmd.Process.Pid }

// Log is what serve has printed so far.
func (g *Gateway) Log() string {
	b, _ := os.ReadFile(g.log)
	return string(b)
}

// Signal sends a signal to the gateway.
func (g *Gateway) Signal(s syscall.Signal) {
	g.t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		g.t.Fatal(err)
	}
}

// Stop ends the gateway with SIGTERM, and fails the test if it does not end
// by itself.
func (g *Gateway) Stop() {
	g.t.Helper()
	g.Signal(syscall.SIGTERM)
	select {
	case <-g.end:
	case <-time.After(Patience):
		g.t.Errorf("serve did not end within %v of SIGTERM", Patience)
	}
	g.Kill()
}

// Kill ends the gateway with SIGKILL, if it runs.
func (g *Gateway) Kill() {
	if g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	<-g.end
}

// A Said is how a command ended.
type Said struct {
	Code     int
	Out, Err string
}

func (s Said) String() string {
	return fmt.Sprintf("exit %d\n%s\n%s", s.Code, strings.TrimSpace(s.Out), strings.TrimSpace(s.Err))
}

// Run runs a command on the data folder.
func (g *Gateway) Run(stdin string, args ...string) Said {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := g.Command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		g.t.Fatalf("sallyport %s: %v", strings.Join(args, " "), err)
	}
	return Said{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// Must is Run, where anything but success fails the test.
func (g *Gateway) Must(stdin string, args ...string) Said {
	g.t.Helper()
	r := g.Run(stdin, args...)
	if r.Code != 0 {
		g.t.Fatalf("sallyport %s: %s", strings.Join(args, " "), r)
	}
	return r
}

// Login logs the admin in, for this process and those that it starts.
func (g *Gateway) Login() {
	g.t.Helper()
	g.Must(g.Password, "login", "--password-stdin")
}

// LoginAs logs another admin in, instead.
func (g *Gateway) LoginAs(name, password string) {
	g.t.Helper()
	g.Must(password, "login", "--password-stdin", "--name", name)
}

// AddAdmin adds an admin, and returns its password. Somebody must be logged in.
func (g *Gateway) AddAdmin(name string, groups ...string) string {
	g.t.Helper()
	var made struct{ Password string }
	args := []string{"admins", "add", name, "--json"}
	for _, group := range groups {
		args = append(args, "--group", group)
	}
	if err := json.Unmarshal([]byte(g.Must("", args...).Out), &made); err != nil {
		g.t.Fatal(err)
	}
	return made.Password
}

// Token is a fresh bearer token of an agent, "" for the one that init made.
func (g *Gateway) Token(agent string) string {
	g.t.Helper()
	args := []string{"token"}
	if agent != "" {
		args = append(args, "--agent", agent)
	}
	return strings.TrimSpace(g.Must("", args...).Out)
}
