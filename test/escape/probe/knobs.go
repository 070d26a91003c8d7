package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// knobs writes to settings of the kernel, under every name that they have, and
// prints those that took it. With "marker" it writes a marker and then what was
// there before; with "same", as on a host, only what is there already.
func knobs(mode, work string, paths []string) {
	tried := 0
	for _, p := range paths {
		for how, alias := range aliases(work, p) {
			tried++
			if err := turn(mode, alias); err == nil {
				fmt.Println("WROTE", p, "by", how)
			}
		}
	}
	if tried > 0 && mode == "marker" {
		tried += raceMask(work, paths[0])
	}
	fmt.Println("TRIED", tried)
}

// aliases are the names of one path.
func aliases(work, path string) map[string]string {
	rest := strings.TrimPrefix(path, "/")
	all := map[string]string{
		"path": path, "self/root": "/proc/self/root/" + rest, "1/root": "/proc/1/root/" + rest, "thread-self/root": "/proc/thread-self/root/" + rest,
		"self/cwd": "/proc/self/cwd/../../../../../../../" + rest, "dots": "/proc/self/../../" + rest,
	}
	name := strings.ReplaceAll(rest, "/", "-")
	link := filepath.Join(work, "link-"+name)
	if os.Symlink(path, link) == nil {
		all["link"] = link
	}
	bound := filepath.Join(work, "bound-"+name)
	if os.WriteFile(bound, nil, 0o600) == nil && unix.Mount(path, bound, "", unix.MS_BIND, "") == nil {
		_ = unix.Mount("", bound, "", unix.MS_REMOUNT|unix.MS_BIND, "") // read-only no more, if it may
		all["bind"] = bound
	}
	for _, kind := range []string{"proc", "sysfs"} {
		root := map[string]string{"proc": "/proc/", "sysfs": "/sys/"}[kind]
		below, ok := strings.CutPrefix(path, root)
		fresh := filepath.Join(work, "fresh-"+kind)
		if !ok || os.MkdirAll(fresh, 0o700) != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(fresh, below)); err == nil || unix.Mount(kind, fresh, kind, 0, "") == nil {
			all["fresh "+kind] = filepath.Join(fresh, below)
		}
	}
	return all
}

// turn writes to one knob.
func turn(mode, path string) error {
	before, _ := os.ReadFile(path)
	// Never made: a name that does not exist is no knob.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if strings.HasSuffix(path, "sysrq-trigger") && mode == "same" {
		return nil // that it opens is enough
	}
	value := bytes.TrimSpace(before)
	if mode == "marker" {
		value = []byte("1probe-marker")
	}
	if len(value) == 0 && mode == "same" {
		return nil
	}
	if _, err := f.Write(value); err != nil {
		return err
	}
	if mode == "marker" {
		_, _ = f.WriteAt(before, 0)
	}
	return nil
}

// raceMask swaps a link between a harmless file and a knob while it is opened.
func raceMask(work, path string) (tried int) {
	harmless, swapped := filepath.Join(work, "harmless"), filepath.Join(work, "swapped")
	if os.WriteFile(harmless, nil, 0o600) != nil {
		return 0
	}
	stop := time.Now().Add(200 * time.Millisecond)
	go func() {
		for i := 0; time.Now().Before(stop); i++ {
			next := filepath.Join(work, "next")
			_ = os.Symlink([]string{harmless, path}[i%2], next)
			_ = os.Rename(next, swapped)
		}
	}()
	for ; time.Now().Before(stop); tried++ {
		f, err := os.OpenFile(swapped, os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		if name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); name == path {
			if _, err := f.WriteString("1probe-marker"); err == nil {
				fmt.Println("WROTE", path, "by a race")
			}
		}
		f.Close()
	}
	return tried
}
