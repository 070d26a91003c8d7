package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// maxVmlinux bounds what a bzImage is unpacked to.
const maxVmlinux = 256 << 20

// vmlinux takes the ELF file out of a bzImage: its payload, of which the header
// tells place and length (Documentation/x86/boot.rst), is that file, compressed.
func vmlinux(image []byte) ([]byte, error) {
	if len(image) < 0x250 || string(image[0x202:0x206]) != "HdrS" || binary.LittleEndian.Uint16(image[0x206:]) < 0x208 {
		return nil, errors.New("not a bzImage of protocol 2.08 or newer")
	}
	sectors := int64(image[0x1f1])
	if sectors == 0 {
		sectors = 4
	}
	from := (sectors+1)*512 + int64(binary.LittleEndian.Uint32(image[0x248:]))
	to := from + int64(binary.LittleEndian.Uint32(image[0x24c:]))
	if to > int64(len(image)) || to-from < 4 {
		return nil, errors.New("its payload lies outside of it")
	}
	payload := image[from : to-4] // the last word is the length of what comes out
	elf, err := unlz4(payload, int(binary.LittleEndian.Uint32(image[to-4:])))
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(elf, []byte("\x7fELF")) {
		return nil, errors.New("its payload is no ELF file")
	}
	return elf, nil
}

// unlz4 reads LZ4's legacy form, which kernels use: a magic number, then blocks of
// at most 8 MiB, each after its compressed length. Blocks do not refer to each other.
func unlz4(b []byte, size int) ([]byte, error) {
	if !bytes.HasPrefix(b, []byte{0x02, 0x21, 0x4c, 0x18}) {
		return nil, fmt.Errorf("its payload is not compressed with LZ4 (it begins with %x)", b[:min(4, len(b))])
	}
	if size > maxVmlinux {
		return nil, fmt.Errorf("its payload would take %d MiB", size>>20)
	}
	out := make([]byte, 0, size)
	for b = b[4:]; len(b) > 0; {
		if len(b) < 4 {
			return nil, errCut
		}
		n := binary.LittleEndian.Uint32(b)
		if b = b[4:]; uint64(n) > uint64(len(b)) {
			return nil, errCut
		}
		var err error
		if out, err = unblock(out, b[:n], size); err != nil {
			return nil, err
		}
		b = b[n:]
	}
	if len(out) != size {
		return nil, fmt.Errorf("its payload is %d bytes, not the %d that it says", len(out), size)
	}
	return out, nil
}

var errCut = errors.New("its payload is damaged")

// unblock appends one block: sequences of literals and of copies of what came
// before in the block.
func unblock(out, b []byte, limit int) ([]byte, error) {
	start := len(out)
	for len(b) > 0 {
		token := b[0]
		var n int
		var ok bool
		if n, b, ok = length(int(token>>4), b[1:]); !ok || n > len(b) || n > limit-len(out) {
			return nil, errCut
		}
		out, b = append(out, b[:n]...), b[n:]
		if len(b) == 0 {
			return out, nil // the last sequence is literals only
		}
		if len(b) < 2 {
			return nil, errCut
		}
		back := int(binary.LittleEndian.Uint16(b))
		n, b, ok = length(int(token&15), b[2:])
		n += 4
		if !ok || back == 0 || back > len(out)-start || n > limit-len(out) {
			return nil, errCut
		}
		for from := len(out) - back; n > 0; { // what is copied may overlap what it makes
			k := min(n, len(out)-from)
			out = append(out, out[from:from+k]...)
			from, n = from+k, n-k
		}
	}
	return nil, errCut
}

// length reads a length: 15 means that bytes follow which are added, up to one that
// is not 255.
func length(n int, b []byte) (int, []byte, bool) {
	if n < 15 {
		return n, b, true
	}
	for i, x := range b {
		n += int(x)
		if x != 255 {
			return n, b[i+1:], true
		}
		if n > maxVmlinux {
			break
		}
	}
	return 0, nil, false
}
