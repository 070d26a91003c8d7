package guest

import (
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// A memory bounds what a module has as memory. Address space for all of it is
// taken at once, so that growing copies nothing; pages come when they are used.
type memory struct {
	limit  uint64 // bytes
	denied bool   // that it was asked for more
	space  []byte
}

// Allocate implements experimental.MemoryAllocator. A module that wants more from the
// start than there is ends here, by a panic with a *failure: wazero has no other way.
func (m *memory) Allocate(first, _ uint64) experimental.LinearMemory {
	if first > m.limit {
		panic(fail(TooLarge, "the module needs %d MiB of memory from the start, and may have %d", first>>20, m.limit>>20))
	}
	return m
}

// Reallocate implements experimental.LinearMemory.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.limit {
		m.denied = true
		return nil
	}
	if m.space == nil {
		space, err := unix.Mmap(-1, 0, int(m.limit), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return nil
		}
		m.space = space
	}
	if size == 0 {
		return m.space[:0:0]
	}
	if unix.Mprotect(m.space[:size], unix.PROT_READ|unix.PROT_WRITE) != nil {
		m.denied = true
		return nil
	}
	return m.space[:size:size]
}

// Free implements experimental.LinearMemory. The process ends soon.
func (m *memory) Free() {}
