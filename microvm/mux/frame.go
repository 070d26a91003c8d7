// Package mux carries many streams of bytes over one channel between a host and
// a guest. The other side is not trusted: what it sends is bounded, a stream that
// nobody reads holds up only itself, and whatever breaks the rules ends the session.
package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The kinds of frames. A frame is its kind (a byte), its stream (uint32), its
// length (uint32), all little endian, and so many bytes.
const (
	frameOpen   = 'O' // of a new stream, by its side's own numbers; no bytes
	frameData   = 'D'
	frameEnd    = 'E' // nothing more comes; no bytes
	frameReset  = 'R' // the stream is gone; no bytes
	frameWindow = 'W' // uint32: so many bytes more may be sent
)

const (
	headerSize = 9
	// MaxData bounds the bytes of one frame.
	MaxData = 32 << 10
	// Window is how many bytes of a stream may be on their way.
	Window = 128 << 10
	// MaxOpened bounds the streams that the other side may have opened at once.
	MaxOpened = 80
)

// ErrBroken means that the other side broke the rules.
var ErrBroken = errors.New("the other side of the channel broke its rules")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrBroken}, args...)...)
}

type frame struct {
	kind byte
	id   uint32
	data []byte
}

func appendFrame(b []byte, kind byte, id uint32, data []byte) []byte {
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint32(b, id)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// readFrame reads one frame. Its data are valid until the next call with buf,
// which has MaxData bytes.
func readFrame(r io.Reader, buf []byte) (frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: h[0], id: binary.LittleEndian.Uint32(h[1:])}
	n := binary.LittleEndian.Uint32(h[5:])
	var most, least uint32
	switch f.kind {
	case frameData:
		most, least = MaxData, 1
	case frameWindow:
		most, least = 4, 4
	case frameOpen, frameEnd, frameReset:
	default:
		return frame{}, broken("a frame of unknown kind %#x", f.kind)
	}
	if n < least || n > most {
		return frame{}, broken("a frame of kind %c with %d bytes", f.kind, n)
	}
	f.data = buf[:n]
	_, err := io.ReadFull(r, f.data)
	return f, err
}
