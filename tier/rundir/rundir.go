// Package rundir takes the folder in which a sandbox host keeps what lasts no
// longer than itself, and the control groups that belong to that folder. One host
// has a folder at a time; the next one ends what a host that was killed left.
package rundir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/cgroup"
)

const (
	folders      = 64               // of one base, and so hosts on one machine
	killPatience = 30 * time.Second // until what was killed must be gone

	// Control groups of hosts whose folder is gone, and so will not be taken again.
	quiet          = time.Minute // after their last change
	removePatience = 3 * time.Second
)

// ErrInUse means that a living host has the folder.
var ErrInUse = errors.New("in use")

// A Dir is a folder that is taken until it is closed.
type Dir struct {
	Path   string
	ID     [6]byte          // of this very folder: containers that share a cgroup file system may each have one at this path
	Groups cgroup.Hierarchy // of this folder, empty at first
	lock   *os.File
	owner  *cgroup.Owner
}

// Privileged says why this process may not run sandboxes, or nil.
func Privileged() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return tier.Unavailable("start sallyport-sandboxd as root; the gateway itself needs no privileges",
		"the sandbox host needs root to make namespaces and control groups; this is uid %d", os.Geteuid())
}

// Take makes the folder at path, which must be absolute, locks it, ends the
// processes that an earlier host left and calls clean, which deletes what else is
// left; nil means that nothing is. It refuses where sandboxes could not be bounded.
// Control groups that hosts of other folders left when they were killed go, too.
func Take(path string, clean func() error) (_ *Dir, err error) {
	if err := Privileged(); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(path) {
		return nil, tier.Unavailable("give an absolute folder", "runtime folder %q is not absolute", path)
	}
	d := &Dir{Path: path}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if err := d.take(); err != nil {
		return nil, err
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	if d.Groups, d.owner, err = cgroup.Own(info, hex.EncodeToString(d.ID[:])); err != nil {
		return nil, tier.Unavailable("mount a cgroup hierarchy with the memory controller, or run sallyport-sandboxd where one is delegated", "%v", err)
	}
	err = d.Groups.Reap(killPatience) // the lock says that nobody else uses them
	if err == nil && clean != nil {
		err = clean()
	}
	if err != nil {
		return nil, tier.Unavailable("end the processes named, or reboot", "an earlier sandbox host left something that cannot be removed: %v", err)
	}
	if err := d.owner.RemoveDead(quiet, removePatience); err != nil { // they are nobody's, and in nobody's way
		slog.Warn("control groups of sandbox hosts that have ended could not be removed", "err", err)
	}
	return d, nil
}

// take makes the folder and locks it.
func (d *Dir) take() error {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(d.Path, &st); err != nil {
		return fmt.Errorf("the runtime folder %s: %w", d.Path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 || st.Mode&0o077 != 0 {
		return tier.Unavailable("remove it, or choose another", "runtime folder %s must be a folder of root with mode 0700", d.Path)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", d.Path, st.Dev, st.Ino))
	copy(d.ID[:], sum[:])
	var err error
	if d.lock, err = os.OpenFile(filepath.Join(d.Path, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		e := tier.Unavailable("stop it, or choose another runtime folder", "another sandbox host uses %s", d.Path)
		e.Err = errors.Join(e.Err, ErrInUse)
		return e
	}
	return nil
}

// Close frees the folder, and removes its control groups if nothing is in them.
func (d *Dir) Close() {
	if d == nil {
		return
	}
	d.owner.Close()
	if d.lock != nil {
		d.lock.Close()
	}
}

// OpenFree opens a host in the first of base's folders 0, 1, … that no living host
// uses, and has the others that nobody uses reaped, by opening and closing a host in
// each. So several gateways can live on one machine, and whichever starts next cleans
// up after any that was killed.
func OpenFree[H io.Closer](base string, open func(n int, dir string) (H, error)) (H, error) {
	var host, none H
	found := false
	for n := range folders {
		dir := filepath.Join(base, strconv.Itoa(n))
		if _, err := os.Stat(dir); found && err != nil {
			continue
		}
		h, err := open(n, dir)
		switch {
		case errors.Is(err, ErrInUse):
		case err != nil && !found:
			return none, err
		case err != nil:
			slog.Warn("an earlier sandbox host's folder could not be cleaned", "dir", dir, "err", err)
		case !found:
			host, found = h, true
		default:
			_ = h.Close() // it has started nothing
		}
	}
	if !found {
		return none, tier.Unavailable("stop some of them", "%d sandbox hosts use %s already", folders, base)
	}
	return host, nil
}
