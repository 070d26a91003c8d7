package qemu

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm/snapshot"
	"sallyport.dev/sallyport/microvm/vmm"
)

// Save implements vmm.VM. What the guest has not written to is copied before it
// is paused.
func (v *vm) Save(ctx context.Context) (s vmm.Snapshot, err error) {
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	was, err := v.status(ctx)
	if err != nil {
		return s, v.because(err)
	}
	if s.Memory, err = snapshot.NewMemory(v.size); err != nil {
		return s, err
	}
	if err := snapshot.Copy(s.Memory, v.memory, v.size); err != nil {
		return s, err
	}
	began := time.Now()
	if err := v.Pause(ctx); err != nil {
		return s, err
	}
	err = v.saveHeld(ctx, s.Memory)
	if was == "running" {
		err = errors.Join(err, v.Resume(ctx))
	}
	s.Paused = time.Since(began)
	if err != nil {
		return s, err
	}
	if err := snapshot.Seal(s.Memory); err != nil {
		return s, err
	}
	s.State, err = v.takeState()
	return s, err
}

func (v *vm) saveHeld(ctx context.Context, memory *os.File) error {
	if _, err := v.qmp.call(ctx, "xen-save-devices-state", map[string]any{"filename": path(fdSave), "live": false}); err != nil {
		return v.because(err)
	}
	return v.copyWritten(memory)
}

const maxState = 8 << 20

// takeState takes what QEMU wrote out of its reach.
func (v *vm) takeState() (*os.File, error) {
	info, err := v.save.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 || info.Size() > maxState {
		return nil, fmt.Errorf("QEMU wrote %d bytes of state", info.Size())
	}
	to, err := snapshot.NewState()
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(to, io.NewSectionReader(v.save, 0, info.Size()))
	if err := errors.Join(err, snapshot.Seal(to)); err != nil {
		to.Close()
		return nil, err
	}
	return to, nil
}

// A stretch is where a part of the guest's memory is in QEMU.
type stretch struct{ start, end, offset uint64 }

// copyWritten copies the pages that belong to QEMU alone: those that the guest
// has written to since it was made.
func (v *vm) copyWritten(to *os.File) error {
	into, err := unix.Mmap(int(to.Fd()), 0, int(v.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(into) //nolint:errcheck // it is a mapping of ours
	pid := v.cmd.Process.Pid
	all, err := stretches(pid, v.size)
	if err != nil {
		return err
	}
	pages, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return err
	}
	defer pages.Close()
	for _, s := range all {
		if err := s.copyWritten(pid, pages, into); err != nil {
			return err
		}
	}
	return nil
}

// stretches finds the guest's memory in QEMU.
func stretches(pid int, size int64) (all []stretch, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	total := uint64(0)
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if !strings.Contains(sc.Text(), "/memfd:"+snapshot.MemoryName+" ") {
			continue
		}
		var s stretch
		var perms string
		if _, err := fmt.Sscanf(sc.Text(), "%x-%x %s %x", &s.start, &s.end, &perms, &s.offset); err != nil {
			return nil, err
		}
		if s.end < s.start || s.offset+s.end-s.start > uint64(size) {
			return nil, errors.New("the guest's memory is not where it should be")
		}
		total += s.end - s.start
		all = append(all, s)
	}
	if total != uint64(size) {
		return nil, fmt.Errorf("%d bytes of the guest's memory were found, of %d", total, size)
	}
	return all, nil
}

const (
	pageSize = 4096

	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
)

func (s stretch) copyWritten(pid int, pages *os.File, into []byte) error {
	n := (s.end - s.start) / pageSize
	table := make([]byte, n*8)
	if _, err := pages.ReadAt(table, int64(s.start/pageSize*8)); err != nil {
		return err
	}
	own := func(i uint64) bool {
		e := binary.LittleEndian.Uint64(table[i*8:])
		return e&pageSwapped != 0 || e&pagePresent != 0 && e&pageOfFile == 0
	}
	for i := uint64(0); i < n; i++ {
		if !own(i) {
			continue
		}
		j := i + 1
		for j < n && own(j) {
			j++
		}
		if err := readProcess(pid, s.start+i*pageSize, into[s.offset+i*pageSize:s.offset+j*pageSize]); err != nil {
			return err
		}
		i = j
	}
	return nil
}

// readProcess reads memory of another process.
func readProcess(pid int, at uint64, to []byte) error {
	for len(to) > 0 {
		n, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &to[0], Len: uint64(len(to))}}, []unix.RemoteIovec{{Base: uintptr(at), Len: len(to)}}, 0)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		to, at = to[n:], at+uint64(n)
	}
	return nil
}
