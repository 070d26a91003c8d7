package snapshot

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Copy copies what is not a hole of a file's first bytes, whoever else reads it.
func Copy(to, from *os.File, size int64) error {
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole follows
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		end = min(end, size)
		if _, err := io.Copy(io.NewOffsetWriter(to, start), io.NewSectionReader(from, start, end-start)); err != nil {
			return err
		}
		at = end
	}
	return nil
}
