// Package snapshot keeps snapshots of guests in which nothing of an agent ever
// ran. Each lies in a folder of its own with a manifest that says what it was made
// with: where anything of that is different, or a byte of it is, it is not used.
package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/mux"
	"sallyport.dev/sallyport/microvm/vmm"
)

// A Made is what a snapshot was made with. All of it must be the same where the
// snapshot is used.
type Made struct {
	VMM      vmm.Identity `json:"vmm"`
	Protocol uint32       `json:"protocol"` // of the guest's process 1
	Kernel   string       `json:"kernel"`   // sha256 over kernel and initramfs
	Image    string       `json:"image"`    // digest
	Memory   int64        `json:"memory"`   // bytes of RAM
	Program  string       `json:"program"`  // what waits in it for its order; "" if nothing has been started
	Leads    bool         `json:"leads"`    // it has a way out
}

// A Manifest says what is in a snapshot.
type Manifest struct {
	Made    Made         `json:"made"`
	Streams mux.State    `json:"streams"` // of the host's side
	Facts   []byte       `json:"facts"`   // of the sandbox, as sallyport-init told them; see payload.Facts
	Bounds  guest.Bounds `json:"bounds"`  // of the sandbox, as they were read back
	Bytes   struct {
		Memory string `json:"memory"` // sha256 hex over its pages
		State  string `json:"state"`
	} `json:"sha256"`
}

// A Store is a folder of snapshots.
type Store struct{ Dir string }

// kept is how many snapshots a store holds; those that were used last stay.
const kept = 12

const (
	memoryFile   = "memory"
	stateFile    = "state"
	manifestFile = "manifest.json"
)

func (s Store) folder(m Made) (string, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return filepath.Join(s.Dir, hex.EncodeToString(sum[:10])), nil
}

// Keep stores a snapshot, and forgets those that were not used for longest.
func (s Store) Keep(m Manifest, of vmm.Snapshot) error {
	dir, err := s.folder(m.Made)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(s.Dir, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if m.Bytes.Memory, err = write(filepath.Join(tmp, memoryFile), of.Memory, m.Made.Memory); err != nil {
		return err
	}
	info, err := of.State.Stat()
	if err != nil {
		return err
	}
	if m.Bytes.State, err = write(filepath.Join(tmp, stateFile), of.State, info.Size()); err != nil {
		return err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, manifestFile), b, 0o600); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(tmp, dir)); err != nil {
		return err
	}
	s.prune()
	return nil
}

func write(path string, from *os.File, size int64) (string, error) {
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	sum, err := copyPages(to, from, size)
	return sum, errors.Join(err, to.Close())
}

// prune forgets what was not used for longest, and what was never finished.
func (s Store) prune() {
	unfinished, _ := filepath.Glob(filepath.Join(s.Dir, ".new-*")) // the pattern is well-formed
	for _, dir := range unfinished {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(dir)
		}
	}
	all, _ := filepath.Glob(filepath.Join(s.Dir, "*")) // the pattern is well-formed
	used := func(i int) int64 {
		info, err := os.Stat(filepath.Join(all[i], manifestFile))
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	sort.Slice(all, func(i, j int) bool { return used(i) > used(j) })
	for i, dir := range all {
		if i >= kept {
			_ = os.RemoveAll(dir) // it is tried again
		}
	}
}

// Load returns the snapshot that was made with this, its memory and state in
// sealed files. The error is fs.ErrNotExist where there is none.
func (s Store) Load(want Made) (m Manifest, of vmm.Snapshot, err error) {
	dir, err := s.folder(want)
	if err != nil {
		return m, of, err
	}
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return m, of, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, of, fmt.Errorf("the manifest in %s: %w", dir, err)
	}
	if err := Differs(m.Made, want); err != nil {
		return m, of, err
	}
	defer func() {
		if err != nil {
			of.Close()
		}
	}()
	if of.Memory, err = read(filepath.Join(dir, memoryFile), MemoryName, m.Bytes.Memory, want.Memory); err != nil {
		return m, of, err
	}
	if of.State, err = read(filepath.Join(dir, stateFile), stateFile, m.Bytes.State, maxState); err != nil {
		return m, of, err
	}
	now := unix.NsecToTimeval(nanoseconds())
	_ = unix.Utimes(filepath.Join(dir, manifestFile), []unix.Timeval{now, now}) // only the order of forgetting
	return m, of, nil
}

const maxState = 8 << 20

// Differs says in what a snapshot was made with something else than is wanted.
func Differs(made, want Made) error {
	for _, c := range []struct {
		what      string
		made, now any
	}{
		{"VMM", made.VMM.Name, want.VMM.Name},
		{"accelerator", made.VMM.Accel, want.VMM.Accel},
		{"version of the VMM", made.VMM.Version, want.VMM.Version},
		{"machine", made.VMM.Machine, want.VMM.Machine},
		{"processor", made.VMM.CPU, want.VMM.CPU},
		{"kernel's command line", made.VMM.Append, want.VMM.Append},
		{"protocol", made.Protocol, want.Protocol},
		{"kernel or initramfs", made.Kernel, want.Kernel},
		{"image", made.Image, want.Image},
		{"memory", made.Memory, want.Memory},
		{"program", made.Program, want.Program},
		{"way out", made.Leads, want.Leads},
	} {
		if c.made != c.now {
			return fmt.Errorf("the snapshot was made with another %s: %.200q, not %.200q", c.what, fmt.Sprint(c.made), fmt.Sprint(c.now))
		}
	}
	return nil
}

// read copies a file of a snapshot into a sealed one, if it is the one that is meant.
func read(path, name, sum string, size int64) (*os.File, error) {
	from, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > size || name == MemoryName && info.Size() != size {
		return nil, fmt.Errorf("%s has %d bytes", path, info.Size())
	}
	to, err := memfd(name)
	if err != nil {
		return nil, err
	}
	got, err := copyPages(to, from, info.Size())
	if err == nil && got != sum {
		err = fmt.Errorf("%s is not what was stored", path)
	}
	if err = errors.Join(err, seal(to)); err != nil {
		to.Close()
		return nil, err
	}
	return to, nil
}

const page = 4096

// copyPages copies a file, leaves holes where it is zero, and returns a hash over
// all pages that are not.
func copyPages(to, from *os.File, size int64) (string, error) {
	if err := to.Truncate(size); err != nil {
		return "", err
	}
	h := sha256.New()
	buf, zero := make([]byte, 64*page), make([]byte, page)
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return "", err
		}
		at = start &^ (page - 1)
		n, err := from.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if n == 0 {
			break
		}
		for i := 0; i < n; i += page {
			p := buf[i:min(i+page, n)]
			if string(p) == string(zero[:len(p)]) {
				continue
			}
			fmt.Fprintf(h, "%d\n", at+int64(i))
			h.Write(p)
			if _, err := to.WriteAt(p, at+int64(i)); err != nil {
				return "", err
			}
		}
		at += int64(n)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
