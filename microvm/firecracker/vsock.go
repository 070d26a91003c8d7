package firecracker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sallyport.dev/sallyport/microvm/guest"
)

// errNobody means that nobody in the guest listens, or does not yet.
var errNobody = errors.New("nobody in the guest listens")

// handshake asks the Firecracker at the other end to connect to a port of the
// guest. No byte that follows is taken.
func handshake(c net.Conn, port uint32) error {
	if _, err := fmt.Fprintf(c, "CONNECT %d\n", port); err != nil {
		return errors.Join(errNobody, err)
	}
	var line []byte
	for b := make([]byte, 1); len(line) < len("OK 4294967295\n"); {
		if _, err := io.ReadFull(c, b); err != nil {
			return errors.Join(errNobody, err)
		}
		if line = append(line, b[0]); b[0] == '\n' {
			break
		}
	}
	_, err := parseOK(string(line))
	return err
}

// parseOK reads "OK PORT\n", and returns the port that the host's end has.
func parseOK(line string) (uint32, error) {
	digits, ok := strings.CutPrefix(line, "OK ")
	digits, whole := strings.CutSuffix(digits, "\n")
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || !whole || err != nil || strconv.FormatUint(n, 10) != digits {
		return 0, fmt.Errorf("the answer to CONNECT is %.40q", line)
	}
	return uint32(n), nil
}

// dialGuest connects to the agent, as soon as it listens. It gives up with ctx, and
// when ended says that there is nobody to wait for.
func dialGuest(ctx context.Context, j *jail, ended func() bool) (net.Conn, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		c, err := j.dial(ctx, vsockFile)
		if err == nil {
			if err = patiently(ctx, c, func() error { return handshake(c, guest.VsockPort) }); err == nil {
				return c, nil
			}
			c.Close()
		}
		wait := errors.Is(err, errNobody) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
		switch {
		case ctx.Err() != nil:
			return nil, unavailable("the guest's agent did not answer in time", "the guest did not boot, or the host is overloaded", errors.Join(ctx.Err(), err))
		case ended():
			return nil, unavailable("Firecracker ended before the guest's agent answered", "its last words are in the log", err)
		case !wait:
			return nil, unavailable("the guest's agent cannot be reached", "its last words are in the log", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// patiently has the end of ctx end what a connection waits for.
func patiently(ctx context.Context, c net.Conn, do func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // a closed one says so when it is used
	err := do()
	if !stop() && err == nil {
		return ctx.Err()
	}
	return err
}
