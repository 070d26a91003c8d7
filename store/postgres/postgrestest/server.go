// Package postgrestest starts a PostgreSQL server of the machine's own in a
// temporary folder, for tests and measurements. It listens on a unix socket
// only, and ends with the process that started it.
package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// ErrAbsent says that no server is installed.
var ErrAbsent = errors.New("no PostgreSQL server is installed (Debian: the package postgresql)")

// A Server is one that runs, or ran.
type Server struct {
	Dir string // of the socket; its data is beneath

	bin    string
	uid    *syscall.Credential // nil = ours
	flags  []string
	cmd    *exec.Cmd
	ended  chan struct{}
	number atomic.Int32
}

// New starts a server for a test, which is skipped where none is installed, and
// fails in continuous integration. settings are as for Start.
func New(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := Start(settings...)
	Need(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Need ends a test for which Start failed with err: where no server is installed
// it is skipped, except in continuous integration, which sets CI.
func Need(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrAbsent) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Start makes a cluster and starts a server on it. settings are NAME=VALUE as
// in postgresql.conf. It does not sync to the disk, which only the machine's own
// end would show, unless they say fsync=on.
func Start(settings ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin}
	if s.Dir, err = os.MkdirTemp("", "pg"); err != nil {
		return nil, err
	}
	if err := s.init(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.Dir))
	}
	for _, v := range append([]string{"listen_addresses=", "unix_socket_directories=" + s.Dir, "unix_socket_permissions=0777",
		"fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=100", "max_wal_senders=0", "wal_level=minimal", "autovacuum=off", "log_min_messages=warning"}, settings...) {
		s.flags = append(s.flags, "-c", v)
	}
	if err := s.Up(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// binaries is the folder of the server's programs: that in PATH, or Debian's
// newest.
func binaries() (string, error) {
	if p, err := exec.LookPath("initdb"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			return filepath.Dir(p), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", ErrAbsent
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })), nil
}

func major(p string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(p))))
	return n
}

// init makes the cluster. The server refuses to run as root, so then it gets
// another user.
func (s *Server) init() error {
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			u, err = user.Lookup("nobody")
		}
		if err != nil {
			return fmt.Errorf("PostgreSQL does not run as root, and there is no other user: %w", err)
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2, os.Chown(s.Dir, uid, gid)); err != nil {
			return err
		}
		s.uid = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // ids fit
	}
	if err := os.Chmod(s.Dir, 0o755); err != nil { // clients of every user find the socket
		return err
	}
	if out, err := s.Run("", "initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C", "--no-instructions"); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), filepath.Join(s.bin, program), args...)
	cmd.Dir = s.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.uid}
	cmd.Env = []string{"PATH=" + s.bin + ":/usr/bin:/bin", "PGHOST=" + s.Dir, "PGUSER=postgres", "PGDATABASE=postgres", "LC_ALL=C"}
	return cmd
}

// Run runs one of PostgreSQL's programs as the server's superuser, on its
// database postgres, and returns what it printed.
func (s *Server) Run(stdin, program string, args ...string) (string, error) {
	cmd := s.command(program, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	err := cmd.Run()
	return out.String(), err
}

// Up starts the server, and returns when it answers.
func (s *Server) Up() error {
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = s.command("postgres", append([]string{"-D", s.data()}, s.flags...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	s.ended = make(chan struct{})
	started := make(chan error)
	go func(cmd *exec.Cmd, ended chan struct{}) {
		runtime.LockOSThread() // the server ends with the thread that started it
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log tells
			close(ended)
		}
	}(s.cmd, s.ended)
	if err := <-started; err != nil {
		return err
	}
	deadline := time.Now().Add(time.Minute)
	for {
		out, err := s.Run("", "psql", "-qAtc", "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			text, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			return fmt.Errorf("PostgreSQL does not start:\n%s", text)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("PostgreSQL does not answer: %s", out)
		}
	}
}

// Down ends the server at once, as a crash would.
func (s *Server) Down() error {
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	select {
	case <-s.ended:
		return nil
	default:
	}
	if err := s.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		return err
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(30 * time.Second):
		return errors.New("PostgreSQL does not end")
	}
}

// Close ends the server and removes everything.
func (s *Server) Close() error {
	return errors.Join(s.Down(), os.RemoveAll(s.Dir))
}

// URL of a database, for the superuser.
func (s *Server) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database,
		RawQuery: url.Values{"host": {s.Dir}}.Encode()}
	return u.String()
}

// Create makes an empty database and returns its URL.
func (s *Server) Create() (string, error) {
	name := "db" + strconv.Itoa(int(s.number.Add(1)))
	if out, err := s.Run("", "psql", "-qc", "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("CREATE DATABASE: %w\n%s", err, out)
	}
	return s.URL(name), nil
}

// Database makes an empty database for a test and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	u, err := s.Create()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// SQL runs statements in the database of url.
func (s *Server) SQL(t testing.TB, url, text string) string {
	t.Helper()
	_, name, _ := strings.Cut(strings.TrimPrefix(url, "postgres://"), "/")
	name, _, _ = strings.Cut(name, "?")
	out, err := s.Run(text, "psql", "-v", "ON_ERROR_STOP=1", "-qAt", "-d", name)
	if err != nil {
		t.Fatalf("%s: %v\n%s", text, err, out)
	}
	return strings.TrimSpace(out)
}
