package session

import (
	"bufio"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"

	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/stay"
)

// A session that rests is frozen: its sandbox's state goes to a disk, encrypted
// under a key that is made for this one time and is nowhere but in this process;
// the file has no name, so nothing is left of it when the process ends.
type frozen struct {
	box  *stay.Kept // as it was
	can  stay.Sleeper
	file *os.File
	aead cipher.AEAD
}

// freeze ends the sandbox and keeps its state. A session that cannot be frozen
// ends.
// Preconditions: it is the caller's turn, and no job runs.
func (s *session) freeze(dir string) {
	box := s.awake()
	if box == nil {
		return
	}
	can, ok := box.Box.(stay.Sleeper)
	if !ok {
		return
	}
	f, err := newFrozen(dir, box, can)
	if err != nil {
		slog.Warn("a session stays in memory: its state cannot be kept on disk", "err", err)
		s.touch()
		return
	}
	s.mu.Lock()
	s.box = nil // its end is no longer that of the session
	s.mu.Unlock()
	w := f.writer()
	if err := errors.Join(can.Freeze(w), w.Close()); err != nil {
		slog.Error("a session could not be frozen", "sandbox", box.ID, "err", err)
		logEnd(box.ID, errors.Join(box.Destroy(), f.file.Close()))
		s.end("it could not be kept while it rested")
		return
	}
	s.mu.Lock()
	s.frozen = f
	s.mu.Unlock()
	if s.over() { // meanwhile
		f.file.Close()
	}
}

// wake makes sure that the session has its sandbox.
// Preconditions: it is the caller's turn.
func (s *session) wake(ctx context.Context) error {
	s.mu.Lock()
	f := s.frozen
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	box, err := f.thaw(ctx, s.request)
	if ctx.Err() != nil {
		return ctx.Err() // it is still frozen
	}
	if err != nil {
		slog.Error("a session could not be thawed", "sandbox", f.box.ID, "err", err)
		s.end("it could not be taken up again")
		return sandboxError(s.why)
	}
	s.mu.Lock()
	s.frozen = nil
	s.mu.Unlock()
	f.file.Close()
	return s.live(&box)
}

func newFrozen(dir string, box *stay.Kept, can stay.Sleeper) (*frozen, error) {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(dir, "frozen-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &frozen{box, can, file, aead}, nil
}

func (f *frozen) thaw(ctx context.Context, r tier.Request) (stay.Kept, error) {
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return stay.Kept{}, err
	}
	return f.can.Wake(ctx, r, &unsealer{from: bufio.NewReaderSize(f.file, 1<<20), aead: f.aead})
}

const sealedChunk = 256 << 10

// nonce of the chunk n; last tells a whole file from one that was cut off.
func nonce(n uint64, last bool) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint64(b[3:], n)
	if last {
		b[11] = 1
	}
	return b
}

// A sealer encrypts a stream in chunks. Close ends the stream, not the file.
type sealer struct {
	to    io.Writer
	aead  cipher.AEAD
	n     uint64
	chunk []byte
}

func (f *frozen) writer() *sealer {
	return &sealer{to: f.file, aead: f.aead, chunk: make([]byte, 0, sealedChunk)}
}

func (s *sealer) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		if len(s.chunk) == sealedChunk {
			if err := s.flush(false); err != nil {
				return done, err
			}
		}
		n := min(len(b)-done, sealedChunk-len(s.chunk))
		s.chunk = append(s.chunk, b[done:done+n]...)
		done += n
	}
	return len(b), nil
}

func (s *sealer) flush(last bool) error {
	out := s.aead.Seal(nil, nonce(s.n, last), s.chunk, nil)
	s.n++
	s.chunk = s.chunk[:0]
	_, err := s.to.Write(out)
	return err
}

func (s *sealer) Close() error { return s.flush(true) }

// An unsealer decrypts what a sealer wrote. Whatever was changed, moved or cut
// off is an error.
type unsealer struct {
	from  *bufio.Reader
	aead  cipher.AEAD
	n     uint64
	plain []byte
	last  bool
}

func (u *unsealer) Read(b []byte) (int, error) {
	for len(u.plain) == 0 {
		if u.last {
			return 0, io.EOF
		}
		sealed := make([]byte, sealedChunk+u.aead.Overhead())
		k, err := io.ReadFull(u.from, sealed)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, io.ErrUnexpectedEOF
		}
		if _, err := u.from.Peek(1); errors.Is(err, io.EOF) {
			u.last = true
		}
		if u.plain, err = u.aead.Open(nil, nonce(u.n, u.last), sealed[:k], nil); err != nil {
			return 0, errors.New("the state of a session was changed on disk")
		}
		u.n++
	}
	n := copy(b, u.plain)
	u.plain = u.plain[n:]
	return n, nil
}
