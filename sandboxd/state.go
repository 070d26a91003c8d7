package sandboxd

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
	"sallyport.dev/sallyport/sandboxd/volume"
)

const (
	defaultState = 256 << 20   // bytes of a server's own folder
	stateFiles   = 20_000      // and files in it
	stateLook    = time.Second // between looks at it
)

// LimitState is the bound on a server's own folder, where it was reached.
const LimitState = "state"

// A state is a server's own folder while it runs. It is a volume, which is full
// when it is full; where this host has none, the folder is looked at now and
// then, and a server that has more than its bound is ended.
type state struct {
	dir     string
	bound   int64
	release func() error // nil: it is no volume
	over    atomic.Bool  // and ended for it
}

func (s *Server) openState(dir string, uid int, bound int64) (*state, error) {
	if bound <= 0 {
		bound = defaultState
	}
	own := &state{dir: dir, bound: bound}
	release, err := s.cfg.Volumes.Mount(dir, uid, volume.Size{Bytes: bound, Files: stateFiles})
	switch {
	case err == nil:
		own.release = release
		return own, nil
	case !errors.Is(err, volume.ErrNone):
		return nil, refused(sallyport.Unavailable, "see the log of sallyport-sandboxd; delete what is not needed, or raise the server's limit state", "the server's own folder could not be opened: %v", err)
	}
	s.noVolumes.Do(func() {
		slog.Warn("servers' own folders are only looked at once a second, for a volume cannot be had here", "err", err)
	})
	if own.exceeded() {
		return nil, refused(sallyport.Unavailable, "delete what is not needed from "+dir+", or raise the server's limit state", "the server's own folder is full: more than %d bytes or %d files", bound, stateFiles)
	}
	return own, nil
}

// watch tells when the folder is full, once each time that it gets so.
func (o *state) watch(i *gvisor.Instance, tell func(*sandboxpb.ServeNews)) {
	t := time.NewTicker(stateLook)
	defer t.Stop()
	full := false
	for {
		select {
		case <-i.Done():
			return
		case <-t.C:
		}
		was := full
		if full = o.full(); full && !was {
			tell(&sandboxpb.ServeNews{LimitsHit: []string{LimitState}})
		}
		if full && o.release == nil {
			o.over.Store(true)
			i.Kill()
			return
		}
	}
}

func (o *state) full() bool {
	if o.release != nil {
		return volume.Full(o.dir)
	}
	return o.exceeded()
}

func (o *state) exceeded() bool {
	size, files := measure(o.dir, o.bound)
	return size > o.bound || files > stateFiles
}

// close ends the use of the folder, and says whether it ended the server.
// Preconditions: nothing of the server runs.
func (o *state) close() (said string) {
	if o.release != nil {
		if err := o.release(); err != nil {
			slog.Error("a server's own folder stays mounted", "err", err)
		}
	}
	if o.over.Load() {
		return fmt.Sprintf("stopped, for its own folder holds more than %d bytes or %d files", o.bound, stateFiles)
	}
	return ""
}

// measure adds up what a folder holds, until it is more than bound. It follows
// no links.
func measure(dir string, bound int64) (size int64, files int) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // what vanishes meanwhile counts as nothing
		if files++; size > bound || files > stateFiles {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // see above
		}
		if info, err := d.Info(); err == nil {
			size += max(info.Size(), allocated(info))
		}
		return nil
	})
	return size, files
}

// allocated is what a file takes on the disk.
func allocated(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return 0
}
