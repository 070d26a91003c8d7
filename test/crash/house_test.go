package crash

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // looks into PostgreSQL
	"golang.org/x/crypto/argon2"

	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/test/stage"
)

// enough is how long a test waits before it is clear that something hangs.
const enough = 3 * time.Minute

// A house is a data folder whose gateway is killed and started again while
// clients and operators go on; and the target, which stays.
type house struct {
	*stage.Gateway
	t      testing.TB
	dir    string // of the target
	target string // its address
	url    string // of PostgreSQL, "" for SQLite

	mu    sync.Mutex // guards what is below
	cmd   *exec.Cmd  // the gateway that runs now
	token string
	kills map[string]int // by point

	stories []story
	settled int // outcomes that an operator had to find out

	sights sights
}

// programs is a folder with a gateway built for these tests, with patches of its
// source (file → old, new) where a test breaks it on purpose. It is alone there:
// no code is run, and a sandbox host would only make each start slower.
func programs(t testing.TB, patches map[string][2]string) string {
	t.Helper()
	to := os.Getenv(envPrograms)
	if patches != nil {
		to = stage.OpenDir(t)
	} else if _, err := os.Stat(filepath.Join(to, "sallyport")); err == nil {
		return to // of another test
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags", "gore2regex,failpoints", "-ldflags=-s -w", "-o", filepath.Join(to, "sallyport")}
	if patches != nil {
		args = append(args, "-overlay", overlay(t, patches))
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, "sallyport.dev/sallyport/cmd/sallyport")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	parser := os.DirFS(filepath.Join(cli.CacheDir(), "wasm"))
	if err := os.CopyFS(filepath.Join(to, "cache", "wasm"), parser); err != nil {
		t.Fatalf("the SQL parser as machine code (`sallyport warm` makes it): %v", err)
	}
	return to
}

// newHouse serves a new data folder with the programs of bin. Of PostgreSQL it
// takes a database of server, nil for SQLite.
func newHouse(t *testing.T, bin string, server *postgrestest.Server) *house {
	t.Helper()
	t.Setenv(stage.EnvBin, bin)
	h := &house{t: t, dir: stage.OpenDir(t), kills: map[string]int{}}
	target, hold := start(t, h.dir, "target")
	t.Cleanup(func() { hold.Close(); _ = target.Wait() }) // it ends with its input
	if server == nil {
		h.Gateway = stage.New(t)
	} else {
		h.url = server.Database(t)
		h.Gateway = stage.NewOn(t, h.url)
	}
	h.light(bin)
	h.configure("")
	h.Write("tools/risky.yaml", "server: t\ntool: risky\nrisk: critical\n")
	t.Cleanup(func() { h.end() })
	h.run("")
	h.login()
	secret := h.Must("", "webhooks", "secret").Out
	h.Must(secret, "secrets", "set", "chat")
	h.end() // the webhook begins with its secret
	return h
}

// light makes a start and a login cheap: there is no image to check, and the
// admin's password is hashed at the least cost.
func (h *house) light(bin string) {
	h.t.Helper()
	h.Env = []string{"SALLYPORT_CACHE=" + filepath.Join(bin, "cache")}
	salt := make([]byte, 16)
	key := argon2.IDKey([]byte(h.Password), salt, 1, 8, 1, 32)
	b64 := base64.RawStdEncoding.EncodeToString
	h.change(fmt.Sprintf("UPDATE admins SET password_hash = '$argon2id$v=%d$m=8,t=1,p=1$%s$%s'", argon2.Version, b64(salt), b64(key)))
}

func (h *house) configure(more string) {
	h.t.Helper()
	address, err := os.ReadFile(addressOf(h.dir))
	if err != nil {
		h.t.Fatal(err)
	}
	h.target = string(address)
	hook := "approvals: {wait: 20ms, cooldown: 0s, per_agent: 1000, webhooks: {chat: {url: \"" + h.target + "/hook\", secret: \"${secret:chat}\"}}}\n"
	h.Write("sallyport.yaml", h.Config(more+hook+"sandbox: {warm: 0}\nlimits: {rate: 10000, burst: 10000}\n"+
		stage.Servers(map[string]stage.Server{"t": {URL: h.target + "/mcp"}})))
}

// states reads what the store says, behind the gateway's back: lists of the
// command line are bounded. query gives names and states.
func (h *house) states(query string) (map[string]string, error) {
	db, err := h.open("ro")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.Query(query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var name, state string
		if err := rows.Scan(&name, &state); err != nil {
			return nil, err
		}
		out[name] = state
	}
	return out, rows.Err()
}

func (h *house) open(mode string) (*sql.DB, error) {
	if h.url != "" {
		return sql.Open("pgx", h.url)
	}
	return sql.Open("sqlite", "file:"+filepath.Join(h.Data, "sallyport.db")+"?mode="+mode+"&_pragma=busy_timeout(60000)")
}

// change alters what the store has, while no gateway runs.
func (h *house) change(statements ...string) {
	h.t.Helper()
	db, err := h.open("rw")
	if err != nil {
		h.t.Fatal(err)
	}
	defer db.Close()
	for _, q := range statements {
		if _, err := db.Exec(q); err != nil {
			h.t.Fatalf("%s: %v", q, err)
		}
	}
}

// must is states, tried again while a gateway is starting.
func (h *house) must(query string) map[string]string {
	for deadline := time.Now().Add(enough); ; time.Sleep(50 * time.Millisecond) {
		out, err := h.states(query)
		if err == nil {
			return out
		}
		if time.Now().After(deadline) {
			h.t.Errorf("%s: %v", query, err)
			return nil
		}
	}
}

// login is the admin's. Its session is that of this process.
func (h *house) login() { _ = h.Run(h.Password, "login", "--password-stdin") }

// newToken is for the agent, asked for in a session of its own: the admin must
// not stand behind the agent's calls, or could not approve them.
func (h *house) newToken() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := h.Command(ctx, "token")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// launch starts the gateway, to be killed at a point or, with "", not.
func (h *house) launch(point string) (ended chan struct{}, said *bytes.Buffer) {
	cmd := h.Serve(context.Background())
	cmd.Env = append(cmd.Env, "SALLYPORT_FAILPOINT="+point)
	said = new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() {
		_ = cmd.Wait() // the status is in ProcessState
		h.note(cmd.ProcessState, point, said.String())
		close(ended)
	}()
	h.mu.Lock()
	h.cmd = cmd
	h.mu.Unlock()
	return ended, said
}

// run is launch, and returns when the gateway is ready, or dead.
func (h *house) run(point string) (ended chan struct{}, ready bool) {
	ended, said := h.launch(point)
	for deadline := time.Now().Add(enough); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		select {
		case <-ended:
			return ended, false
		default:
		}
		if status, _ := h.Get("/readyz"); status == http.StatusOK {
			return ended, true
		}
	}
	h.kill()
	<-ended
	h.t.Fatalf("the gateway does not start: %s", said)
	return ended, false
}

// note counts a kill. A gateway that ended otherwise is a failure.
func (h *house) note(st *os.ProcessState, point, said string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name, _, _ := strings.Cut(point, ":")
	ws, ok := st.Sys().(syscall.WaitStatus)
	switch {
	case ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL && name != "" && strings.Contains(said, "failpoint "+name+"\n"):
		h.kills[name]++
	case ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL:
		h.kills["any moment"]++
	case st.Success(): // it was asked to
	default:
		h.t.Errorf("serve ended by itself: %v\n%s", st, said)
	}
}

// kill kills the gateway that runs.
func (h *house) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cmd != nil {
		_ = h.cmd.Process.Kill()
	}
}

// end ends the gateway in good order.
func (h *house) end() {
	h.mu.Lock()
	cmd := h.cmd
	h.cmd = nil
	h.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	for deadline := time.Now().Add(enough); cmd.Process.Signal(syscall.Signal(0)) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Error("the gateway does not end")
			_ = cmd.Process.Kill()
		}
	}
}

// operate runs an operator's command until it succeeds, or has: the gateway may
// be dead, or die of it.
func (h *house) operate(has func() bool, args ...string) error {
	var r stage.Said
	for deadline := time.Now().Add(enough); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if r = h.Run("", args...); r.Code == 0 {
			return nil
		}
		if has != nil && has() {
			return nil
		}
		if strings.Contains(r.Err, "log in") || strings.Contains(r.Err, "login") {
			h.login()
		}
	}
	return fmt.Errorf("%s: %s", strings.Join(args, " "), r)
}
