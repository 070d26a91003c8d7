package tiertest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/test/proc"
)

// maxOnDisk is more than a host and all its sandboxes have there by right; what the
// assaults write is a hundred times that.
const maxOnDisk = 64 << 20

// mostOnDisk looks, until it is stopped, at what a host takes of this machine's disks,
// and tells the most that it was.
func mostOnDisk(t testing.TB, dir string) (stop func() int64) {
	over := make(chan struct{})
	most := int64(0)
	var looks sync.WaitGroup
	looks.Go(func() {
		for live := true; live; live = !closed(over) {
			most = max(most, onDisk(t, dir))
			select {
			case <-over:
			case <-time.After(time.Second):
			}
		}
	})
	return func() int64 { close(over); looks.Wait(); return max(most, onDisk(t, dir)) }
}

// onDisk is what the files in a host's folder, and those that processes of this one's
// hold open for writing, deleted or not, take of disks. Others use the disks, too: what
// is free there says nothing.
func onDisk(t testing.TB, dir string) (bytes int64) {
	seen := map[[2]uint64]bool{}
	count := func(path string) {
		var st unix.Stat_t
		var in unix.Statfs_t
		if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || seen[[2]uint64{uint64(st.Dev), st.Ino}] {
			return
		}
		seen[[2]uint64{uint64(st.Dev), st.Ino}] = true
		if unix.Statfs(path, &in) == nil && in.Type != unix.TMPFS_MAGIC {
			bytes += st.Blocks * 512
		}
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what has gone takes nothing
		if err == nil && d.Type().IsRegular() {
			count(path)
		}
		return nil
	})
	for _, pid := range proc.Descendants(t, os.Getpid()) {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			if forWriting(pid, filepath.Base(fd)) {
				count(fd)
			}
		}
	}
	return bytes
}

func forWriting(pid int, fd string) bool {
	info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	_, rest, _ := strings.Cut(string(info), "flags:")
	flags, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	n, err := strconv.ParseInt(flags, 8, 64)
	return err == nil && n&unix.O_ACCMODE != unix.O_RDONLY
}
