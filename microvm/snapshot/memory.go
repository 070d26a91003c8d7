package snapshot

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// MemoryName is the name of files that hold a guest's memory.
const MemoryName = "sallyport-ram"

// NewMemory makes a file in memory of so many bytes, all holes, that can be
// sealed. A VMM, which is another user, opens it by its descriptor.
func NewMemory(size int64) (*os.File, error) {
	f, err := memfd(MemoryName)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// NewState makes an empty file in memory, likewise.
func NewState() (*os.File, error) { return memfd(stateFile) }

func memfd(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Chmod(0o666); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Seal makes a file one that nobody can change, not even this process.
func Seal(f *os.File) error { return seal(f) }

func seal(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	return err
}

// Sealed says why a file could be changed, or nil.
func Sealed(f *os.File) error {
	have, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err == nil && have&seals != seals {
		err = errors.New("a snapshot that could be written to")
	}
	return err
}

func nanoseconds() int64 { return time.Now().UnixNano() }
