// Package demo plays two real attacks, and what surrounds them, against a real
// gateway on a throw-away data folder, and says what happened. It uses the
// same commands as a user does; what must not happen is watched by a process
// of its own, the canary.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Options say how to play.
type Options struct {
	// Self is the command line of this program, such as ["/usr/bin/sallyport"].
	Self []string

	// ToolServer is the command line of the SQL server; its folder must be
	// readable by every user, since the server runs as a user of its own.
	ToolServer []string

	Out io.Writer

	// BeforeVerify is called with the data folder before the audit log is
	// verified. Tests tamper with it here.
	BeforeVerify func(data string) error
}

// ErrFailed is returned when an expectation did not hold.
var ErrFailed = errors.New("the demo failed: an expectation did not hold")

// Run plays the demo. It returns nil only if every expectation held.
func Run(ctx context.Context, o Options) error {
	dir, err := os.MkdirTemp("", "sallyport-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	s := &story{Options: o, dir: dir, data: filepath.Join(dir, "data"), began: time.Now()}
	defer s.close()
	for _, scene := range []struct {
		title string
		play  func(context.Context) error
	}{
		{"A gateway, and a canary that watches it from outside", s.stage},
		{"Attack 1: an agent sends DROP TABLE orders, in four disguises", s.drops},
		{"Attack 2: a script downloads and runs what it found on the net", s.download},
		{"A result that carries a password", s.masking},
		{"The disguise on which nobody decided", s.expired},
		{"The record", s.audit},
	} {
		s.title(scene.title)
		if err := scene.play(ctx); err != nil {
			return fmt.Errorf("demo: %s: %w", scene.title, err)
		}
	}
	s.summary()
	if s.broken > 0 {
		return ErrFailed
	}
	return nil
}

// A story is one run of the demo.
type story struct {
	Options
	dir, data string
	began     time.Time
	canary    *process
	gateway   *process
	addr      string // of the canary
	password  string // of the admin
	forgotten string // ticket on which nobody decides
	held      int
	broken    int
}

func (s *story) close() {
	s.gateway.stop()
	s.canary.stop()
}

func (s *story) title(t string) { fmt.Fprintf(s.Out, "\n%s\n", t) }

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.Out, "    "+format+"\n", args...)
}

// expect notes whether something held.
func (s *story) expect(ok bool, format string, args ...any) {
	mark := "ok  "
	if s.held++; !ok {
		mark, s.held = "FAIL", s.held-1
		s.broken++
	}
	fmt.Fprintf(s.Out, "  %s %s\n", mark, fmt.Sprintf(format, args...))
}

func (s *story) summary() {
	seconds := time.Since(s.began).Seconds()
	if s.broken > 0 {
		fmt.Fprintf(s.Out, "\n%d of %d expectations did NOT hold, in %.1f s\n", s.broken, s.held+s.broken, seconds)
		return
	}
	fmt.Fprintf(s.Out, "\nall %d expectations held, in %.1f s\n", s.held, seconds)
}
