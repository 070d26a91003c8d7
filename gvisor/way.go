package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
)

// The way out of a sandbox is a unix socket in a folder of its own, mounted
// into the sandbox; the broker serves it. Only process 1 can open it, and only
// a sandbox that has one may open sockets of the host at all.

const (
	wayInside    = "/srv" // an empty folder of every image
	wayName      = "way"
	socketInside = wayInside + "/" + wayName

	// wayUID is the uid, and gid, as which gVisor's file server of a sandbox with a
	// way out runs. It owns nothing but the sockets.
	wayUID = 65533
)

func (s *sandbox) wayDir() string { return filepath.Join(s.dir, "way") }

// openWay makes a way out that leads somewhere, if a run is to have one.
func (h *Host) openWay(s *sandbox, r tier.Request) error {
	if len(r.Way.Reach) == 0 && s.gpu == nil {
		return nil
	}
	if err := h.listenWay(s, r.Way, wayTime(r.Limits)); err != nil {
		return err
	}
	return h.ownBundle(s)
}

func wayTime(l sallyport.Limits) time.Duration { return l.Timeout + bootPatience + killPatience }

// clearWay makes a way out for a sandbox that waits: an empty folder, which leads
// nowhere. The socket is put there when it is known for whom. If secrets may be
// injected, the sandbox trusts an authority already.
func (h *Host) clearWay(s *sandbox, trusts bool) (err error) {
	if h.cfg.Broker == nil {
		return errors.New("nothing lets this sandbox out")
	}
	if trusts {
		if s.ca, err = h.cfg.Broker.Authority(2 * warmLife); err != nil {
			return err
		}
	}
	s.mayOpen = true
	if err := os.Mkdir(s.wayDir(), 0o755); err != nil {
		return err
	}
	return h.ownBundle(s)
}

// ownBundle makes the bundle of a sandbox that is unlike others: it mounts the
// folder of a way out, or shows GPUs.
func (h *Host) ownBundle(s *sandbox) error {
	bundle := filepath.Join(s.dir, "bundle")
	root := filepath.Join(bundle, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	spec := specOf(root, s.way())
	if s.gpu != nil {
		s.gpu.Show(spec, h.driverDir(), driverInside)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600)
}

// way is the folder of the way out, "" where there is none.
func (s *sandbox) way() string {
	if !s.mayOpen {
		return ""
	}
	return s.wayDir()
}

// listenWay makes the socket, anew if there was one, and the broker's service
// behind it, if w leads anywhere.
func (h *Host) listenWay(s *sandbox, w tier.Way, within time.Duration) (err error) {
	if len(w.Reach) == 0 {
		return nil
	}
	if err := w.Check(h.cfg.Broker); err != nil {
		return err
	}
	s.mayOpen = true
	if err := os.MkdirAll(s.wayDir(), 0o755); err != nil {
		return err
	}
	path := filepath.Join(s.wayDir(), wayName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.ca, s.endWay, err = w.Serve(h.cfg.Broker, tier.Socket{Path: path, Mode: 0o600, UID: wayUID}, s.id, s.ca, within)
	return err
}

// bundleOf is the configuration that a sandbox starts from: one for all, but
// for those that have a way out or a GPU.
func (h *Host) bundleOf(s *sandbox) string {
	if !s.mayOpen && s.gpu == nil {
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
func (s *sandbox) closeWay() tier.Passed {
	if s.endWay == nil {
		return tier.Passed{}
	}
	end := s.endWay
	s.endWay = nil
	return end()
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
