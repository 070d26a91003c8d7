package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Each sandbox host has folders of its own among the control groups, and holds a lock
// on one of them: the kernel takes that away when the host ends, however it does, and
// shows it to hosts in other containers too. So whoever starts next can tell the
// groups that nobody owns any more.

// ownPrefix begins the names of folders whose owners hold a lock.
const ownPrefix = "host-"

// An Owner holds a Hierarchy's folders until it is closed, or its process ends.
type Owner struct {
	h    Hierarchy
	lock *os.File
}

// heldPatience is how long a host waits for its folders: another may look whether they
// are abandoned.
const heldPatience = 20 * time.Second

// Own finds and makes the folders that are named by key, and takes them. It refuses where
// somebody else has them, as a host of the same folder in another container may, or
// whoever else can see them.
func Own(mountinfo []byte, key string) (Hierarchy, *Owner, error) {
	return own(mountinfo, key, heldPatience)
}

func own(mountinfo []byte, key string, patience time.Duration) (h Hierarchy, _ *Owner, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if h, err = Find(mountinfo, ownPrefix+key); err != nil {
			return h, nil, err
		}
		lock, err := lockFolder(h.memory)
		if err == nil && lock != nil {
			return h, &Owner{h, lock}, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return h, nil, err
		}
		if time.Now().After(end) {
			return h, nil, fmt.Errorf("the control groups %s are locked by another process, or vanish as soon as they are made", h.memory)
		}
	}
}

// lockFolder locks a folder, without waiting. Without an error, nil means
// that another has it, or that it is another folder by now.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	var held, there unix.Stat_t
	if err == nil {
		err = errors.Join(unix.Fstat(int(f.Fd()), &held), unix.Stat(dir, &there))
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK), err == nil && held.Ino != there.Ino:
		err = nil
	case err == nil:
		return f, nil
	}
	f.Close()
	return nil, err
}

// Close removes the folders if nothing is in them, and gives them up.
func (o *Owner) Close() {
	if o != nil {
		o.h.removeFolders()
		o.lock.Close()
	}
}

// removeFolders removes the folders that are empty. That of the lock is the last.
func (h Hierarchy) removeFolders() {
	all := h.Folders()
	for i := range all {
		_ = unix.Rmdir(all[len(all)-1-i])
	}
}

// RemoveDead ends what is in the groups of hosts that have ended, and removes them, as
// far as that is done within patience: the next host goes on. It leaves alone what
// changed less than quiet ago, for whose folder a new host may be just starting.
func (o *Owner) RemoveDead(quiet, patience time.Duration) error {
	return o.removeDead(ownPrefix, quiet, patience)
}

func (o *Owner) removeDead(prefix string, quiet, patience time.Duration) error {
	base := filepath.Dir(o.h.memory)
	entries, err := os.ReadDir(base)
	if err != nil {
		return err
	}
	var errs []error
	end := time.Now().Add(patience)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) || time.Since(info.ModTime()) < quiet {
			continue
		}
		if time.Now().After(end) {
			break
		}
		lock, err := lockFolder(filepath.Join(base, e.Name()))
		if err != nil || lock == nil { // it lives, or is gone
			continue
		}
		errs = append(errs, o.h.beside(e.Name()).clear(time.Until(end)))
		lock.Close()
	}
	return errors.Join(errs...)
}

// beside is the hierarchy of another host.
func (h Hierarchy) beside(name string) Hierarchy {
	h.memory = filepath.Join(filepath.Dir(h.memory), name)
	if h.cpu != "" {
		h.cpu = filepath.Join(filepath.Dir(h.cpu), name)
	}
	return h
}

// clear ends what is in all groups and removes them with their folders.
func (h Hierarchy) clear(patience time.Duration) error {
	err := h.Reap(patience)
	if err == nil {
		h.removeFolders()
	}
	return err
}

// Reap ends what is in the groups, and removes them.
// Preconditions: nobody makes any meanwhile.
func (h Hierarchy) Reap(patience time.Duration) error {
	var errs []error
	for _, g := range h.Groups() {
		if err := g.Kill(patience); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, g.Remove())
	}
	return errors.Join(errs...)
}
