package gvisor

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
)

// The way out of a sandbox is a unix socket in a folder of its own, mounted
// into the sandbox; the broker serves it. Only process 1 can open it, and only
// a sandbox that has one may open sockets of the host at all.

const (
	wayInside    = "/srv" // an empty folder of every image
	wayName      = "way"
	socketInside = wayInside + "/" + wayName
)

func (s *sandbox) wayDir() string { return filepath.Join(s.dir, "way") }

// openWay makes the socket, the broker's service behind it, and the bundle that
// mounts it.
func (h *Host) openWay(s *sandbox, r Request) error {
	if err := h.listenWay(s, r.Way, r.Limits.Timeout+bootPatience+killPatience); err != nil {
		return err
	}
	bundle := filepath.Join(s.dir, "bundle")
	root := filepath.Join(bundle, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	spec, err := bundleSpec(root, s.wayDir())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o600)
}

// listenWay makes the socket, anew if there was one, and the broker's service
// behind it.
func (h *Host) listenWay(s *sandbox, w Way, within time.Duration) error {
	if h.cfg.Broker == nil {
		return unavailable("start the sandbox host with an egress broker", "this sandbox host lets nothing out, and the run is to reach %q", w.Reach)
	}
	s.mayOpen = true
	if err := os.MkdirAll(s.wayDir(), 0o755); err != nil {
		return err
	}
	path := filepath.Join(s.wayDir(), wayName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // the folder goes as a whole
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return err
	}
	s.ca, s.endWay, err = h.cfg.Broker.Open(s.id, w, within, l)
	return err
}

// bundleOf is the configuration that a sandbox starts from: one for all, but
// for those that have a way out.
func (h *Host) bundleOf(s *sandbox) string {
	if !s.mayOpen {
		return h.bundle()
	}
	return filepath.Join(s.dir, "bundle")
}

// hostSockets is whether the sandbox may open the sockets that are mounted.
func (s *sandbox) hostSockets() string {
	if !s.mayOpen {
		return "none"
	}
	return "open"
}

// closeWay ends the broker's service, once.
func (s *sandbox) closeWay() Passed {
	if s.endWay == nil {
		return Passed{}
	}
	end := s.endWay
	s.endWay = nil
	return end()
}

// Denials tells what was asked of a sandbox that reaches nothing.
func Denials(targets []string) []sallyport.Connection {
	count := map[string]int{}
	for _, t := range targets {
		count[t]++
	}
	var out []sallyport.Connection
	for _, t := range slices.Sorted(maps.Keys(count)) {
		out = append(out, sallyport.Connection{Target: t, Reason: "not_listed", Count: count[t]})
	}
	return out
}

// removeRun deletes the folder of a sandbox. Where it has a way out, gVisor
// mounts the empty network namespace of its file server there.
func removeRun(dir string) error {
	if err := unpin(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

func unpin(dir string) error {
	pinned := filepath.Join(dir, "null-netns")
	if err := unix.Unmount(pinned, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.ENOENT && err != unix.EINVAL {
		return fmt.Errorf("unmounting %s: %w", pinned, err)
	}
	return nil
}
