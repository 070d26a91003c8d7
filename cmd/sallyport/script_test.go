package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"sallyport.dev/sallyport/test/stage"

	"sallyport.dev/sallyport/approval/passkey/passkeytest"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/isolate/workerd"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/port"
)

// TestScripts plays the sessions of testdata/script: what a user types, and what
// comes of it. Beside testscript's own commands they have
//
//	exits N CMD [ARG…]     run a command that must end with status N
//	capture NAME REGEXP    set a variable to what the group matches in stdout
//	gateway [FLAG…]        init $SALLYPORT_DATA if needed, add extra.yaml and
//	                       tools/ and policies/, serve on a free $PORT, and wait until ready;
//	                       the admin's password is in the file password;
//	                       with $AS_NOBODY set, all that as the user nobody
//	reconfigure FILE…      write the configuration anew, as of init and of these files
//	gateway-stop           SIGTERM; it must end with status 0
//	fetch N METHOD PATH [TOKEN [BODY|@FILE]]   an HTTP request to the gateway
//	listen TOKEN, heard    open a stream of changes; what it told until it ended
//	running REGEXP         a process with such a command line exists
//	eventually REGEXP CMD [ARG…]   run a command until its stdout matches
//	tamper FILE SQL        change a database behind Sallyport's back
//	api                    an HTTP API at $API, which keeps a $LEDGER: see api_test.go
//	browse, receiver, deliver   passkeys and webhooks: see deciding_test.go
//
// and the conditions [sandbox]: root, with an image in the cache; [tiers]: and all
// that every tier needs.
func TestScripts(t *testing.T) {
	t.Parallel()
	bin := install(t)
	examples, err := filepath.Abs("../../docs/examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			open, err := os.MkdirTemp(filepath.Dir(bin), "open-") // whoever runs what may read it
			if err != nil {
				return err
			}
			e.Defer(func() { os.RemoveAll(open) })
			e.Setenv("OPEN", open)
			e.Setenv("EXAMPLES", examples)
			e.Setenv("BIN", bin)
			e.Setenv("PATH", bin+":"+e.Getenv("PATH"))
			e.Setenv("SALLYPORT_DATA", filepath.Join(e.WorkDir, "data"))
			e.Setenv("SALLYPORT_CACHE", cli.CacheDir())
			e.Values[serverKey{}] = &server{}
			e.Values[listenKey{}] = new(io.ReadCloser)
			e.Values[authenticatorsKey{}] = map[string]*passkeytest.Authenticator{}
			return os.Chmod(open, 0o755)
		},
		Condition: func(cond string) (bool, error) {
			_, err := image.Open(cli.CacheDir(), image.DefaultName)
			switch cond {
			case "sandbox":
			case "tiers":
				if err == nil && os.Getenv("CI") == "" { // where nothing may be left out
					err = everyTier(bin)
				}
			default:
				return false, fmt.Errorf("no condition %q", cond)
			}
			return os.Geteuid() == 0 && err == nil, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "capture": capture, "gateway": gatewayUp, "gateway-stop": gatewayStop, "reconfigure": reconfigure,
			"fetch": fetch, "listen": listen, "heard": heard, "running": running, "eventually": eventually, "tamper": tamper,
			"api": api, "browse": browse, "receiver": receiver, "deliver": deliver,
		},
	})
}

// everyTier says what a tier lacks on this machine, nil for nothing.
func everyTier(programs string) error {
	f, err := workerd.Find(cli.CacheDir())
	if err == nil {
		f.Close()
		err = microvm.Missing(microvm.Config{Programs: programs, Cache: cli.CacheDir()})
	}
	return err
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if err != nil || neg || len(args) < 2 {
		ts.Fatalf("usage: exits N CMD [ARG…]")
	}
	err = ts.Exec(args[1], args[2:]...)
	code := 0
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		code = e.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit status %d, want %d", code, want)
	}
}

func capture(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: capture NAME REGEXP")
	}
	m := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) != 2 {
		ts.Fatalf("no match of %q in stdout", args[1])
	}
	ts.Setenv(args[0], m[1])
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually REGEXP CMD [ARG…]")
	}
	want := regexp.MustCompile("(?m)" + args[0])
	for deadline := time.Now().Add(stage.Patience); ; time.Sleep(200 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...) // its status does not matter
		if want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no match of %q within %v", args[0], stage.Patience)
		}
	}
}

func tamper(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	// Whoever owns the file can drop what guards it inside.
	rows, err := db.Query("SELECT name FROM sqlite_master WHERE type = 'trigger'")
	ts.Check(err)
	var drop strings.Builder
	for rows.Next() {
		var name string
		ts.Check(rows.Scan(&name))
		fmt.Fprintf(&drop, "DROP TRIGGER %q;", name)
	}
	ts.Check(errors.Join(rows.Err(), rows.Close()))
	_, err = db.Exec(drop.String() + args[1])
	ts.Check(err)
}

// A server is the gateway of a script.
type server struct {
	cmd   *exec.Cmd
	ended chan struct{}
	log   string
}

type serverKey struct{}

const nobody = 65534

func gatewayUp(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value(serverKey{}).(*server)
	data := ts.Getenv("SALLYPORT_DATA")
	if _, err := os.Stat(filepath.Join(data, "sallyport.yaml")); err != nil {
		prepare(ts, data)
	}
	addr, err := port.Free()
	ts.Check(err)
	_, number, _ := net.SplitHostPort(addr)
	ts.Setenv("PORT", number)
	s.log = ts.MkAbs("gateway.log")
	log, err := os.Create(s.log)
	ts.Check(err)
	defer log.Close()
	s.cmd = exec.Command(filepath.Join(ts.Getenv("BIN"), "sallyport"), slices.Concat([]string{
		"serve", "--listen", "127.0.0.1:" + number, "--server-homes", filepath.Join(ts.Getenv("OPEN"), "homes")}, args)...)
	s.cmd.Env = append(os.Environ(), "SALLYPORT_DATA="+data, "SALLYPORT_CACHE="+ts.Getenv("SALLYPORT_CACHE"))
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if ts.Getenv("AS_NOBODY") != "" {
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	ts.Check(s.cmd.Start())
	ended := make(chan struct{})
	s.ended = ended
	go func() { s.cmd.Wait(); close(ended) }()
	ts.Defer(s.stop)
	s.await(ts, "http://127.0.0.1:"+number+"/readyz")
}

// prepare makes the data folder.
func prepare(ts *testscript.TestScript, data string) {
	argv := []string{"sallyport", "init", "--data", data, "--json"}
	if ts.Getenv("AS_NOBODY") != "" {
		argv = slices.Concat([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}, argv)
	}
	ts.Check(ts.Exec(argv[0], argv[1:]...))
	var m made
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &m))
	ts.Check(os.WriteFile(ts.MkAbs("password"), []byte(m.Admin.Password+"\n"), 0o600))
	base, err := os.ReadFile(m.Config)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("base.yaml"), base, 0o600))
	if extra, err := os.ReadFile(ts.MkAbs("extra.yaml")); err == nil {
		yaml, err := os.ReadFile(m.Config)
		ts.Check(err)
		text := os.Expand(string(extra), ts.Getenv)
		ts.Check(os.WriteFile(m.Config, append(yaml, text...), 0o644))
	}
	for dir, pattern := range map[string]string{"tools": "*.yaml", "policies": "*.cedar"} {
		files, err := filepath.Glob(ts.MkAbs(filepath.Join(dir, pattern)))
		ts.Check(err)
		for _, f := range files {
			b, err := os.ReadFile(f)
			ts.Check(err)
			ts.Check(os.WriteFile(filepath.Join(data, dir, filepath.Base(f)), b, 0o644))
		}
	}
}

func (s *server) await(ts *testscript.TestScript, url string) {
	for deadline := time.Now().Add(stage.Patience); ; time.Sleep(50 * time.Millisecond) {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-s.ended:
			ts.Fatalf("the gateway ended: %s", ts.ReadFile(s.log))
		default:
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the gateway does not get ready: %s", ts.ReadFile(s.log))
		}
	}
}

func reconfigure(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: reconfigure FILE…")
	}
	text := ts.ReadFile("base.yaml")
	for _, file := range args {
		text += os.Expand(ts.ReadFile(file), ts.Getenv)
	}
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("SALLYPORT_DATA"), "sallyport.yaml"), []byte(text), 0o644))
}

// stop ends the gateway, if it runs, and waits for it.
func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stage.Patience):
		s.cmd.Process.Kill()
		<-s.ended
	}
}

func gatewayStop(ts *testscript.TestScript, _ bool, _ []string) {
	s := ts.Value(serverKey{}).(*server)
	s.stop()
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		ts.Fatalf("the gateway ended with %d: %s", code, ts.ReadFile(s.log))
	}
}

func fetch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: fetch N METHOD PATH [TOKEN [BODY]]")
	}
	args = append(args, "", "")
	if file, ok := strings.CutPrefix(args[4], "@"); ok {
		args[4] = ts.ReadFile(file)
	}
	req, err := http.NewRequest(args[1], "http://127.0.0.1:"+ts.Getenv("PORT")+args[2], strings.NewReader(args[4]))
	ts.Check(err)
	if args[3] != "" {
		req.Header.Set("Authorization", "Bearer "+args[3])
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
	if strconv.Itoa(resp.StatusCode) != args[0] {
		ts.Fatalf("%s, want %s", resp.Status, args[0])
	}
}

func running(ts *testscript.TestScript, neg bool, args []string) {
	want := regexp.MustCompile(args[0])
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	ts.Check(err)
	found := ""
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && want.Match(b) {
			found = f + ": " + strings.ReplaceAll(string(b), "\x00", " ")
		}
	}
	if (found == "") != neg {
		ts.Fatalf("running %s: %s", args[0], found)
	}
}
