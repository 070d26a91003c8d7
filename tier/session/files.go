package session

import (
	"bytes"
	"context"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// An Entry is what a folder of a session holds.
type Entry struct {
	Name string
	Kind string // "file", "folder", "link", "other"
	Size int64
	Time time.Time
}

const unknownSize = math.MaxUint64

// Put stores a file of size bytes, or of as many as there are where size is
// negative. It appears when it is whole; one that is too large for what is free
// is refused before it fills anything.
func (x *Sessions) Put(ctx context.Context, k Key, terms Terms, name string, size int64, from io.Reader) (int64, error) {
	if err := tier.CheckPath(name); err != nil {
		return 0, err
	}
	s, err := x.visit(ctx, k, terms)
	if err != nil {
		return 0, err
	}
	defer x.leave(s)
	return s.store(name, size, from)
}

func (s *session) put(name string, content []byte) error {
	_, err := s.store(name, int64(len(content)), bytes.NewReader(content))
	return err
}

// store writes one file. Whatever fails, nothing of it is seen.
func (s *session) store(name string, size int64, from io.Reader) (int64, error) {
	want := uint64(unknownSize)
	if size >= 0 {
		want = uint64(size)
	}
	ok, err := s.simple(payload.Append(nil, payload.Put, append(payload.AppendUint64(nil, want), name...)))
	if err != nil {
		return 0, err
	}
	free := int64(min(payload.Uint64(ok.Data), math.MaxInt64))
	n, err := s.send(from, min(free, cmpSize(size)))
	if err != nil {
		_, abortErr := s.simple(payload.Append(nil, payload.Abort, nil))
		if abortErr != nil {
			return 0, abortErr
		}
		return 0, err
	}
	_, err = s.simple(payload.Append(nil, payload.Commit, nil))
	return n, err
}

func cmpSize(size int64) int64 {
	if size < 0 {
		return math.MaxInt64
	}
	return size
}

// send copies at most max bytes into the sandbox; more are refused.
func (s *session) send(from io.Reader, max int64) (n int64, err error) {
	box := s.awake()
	if box == nil {
		return 0, sandboxError(s.why)
	}
	buf := make([]byte, 256<<10)
	var frame []byte
	for {
		k, err := io.ReadFull(from, buf)
		if n += int64(k); n > max {
			return n, refuse(sallyport.TooLarge, "store less, or announce its true size", "the file is larger than was announced, or than the %d bytes that the session's disk has free", max)
		}
		if k > 0 {
			frame = payload.Append(frame[:0], payload.Data, buf[:k])
			if _, werr := box.In.Write(frame); werr != nil {
				s.end(s.cause())
				return n, sandboxError(s.why)
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return n, nil
		default:
			return n, err
		}
	}
}

// Get writes a file, from an offset on and at most length bytes (all, where it
// is negative), to to. It returns the whole size of the file.
func (x *Sessions) Get(ctx context.Context, k Key, terms Terms, name string, offset, length int64, to io.Writer) (int64, error) {
	if err := tier.CheckPath(name); err != nil {
		return 0, err
	}
	s, err := x.visit(ctx, k, terms)
	if err != nil {
		return 0, err
	}
	defer x.leave(s)
	if s.secret {
		return 0, withheld
	}
	return s.fetch(name, offset, length, to)
}

func (s *session) fetch(name string, offset, length int64, to io.Writer) (int64, error) {
	want := uint64(unknownSize)
	if length >= 0 {
		want = uint64(length)
	}
	b := payload.AppendUint64(payload.AppendUint64(nil, uint64(max(offset, 0))), want)
	ok, err := s.last(s.ask(payload.Append(nil, payload.Get, append(b, name...))), func(r payload.Record) error {
		if r.Kind != payload.Data {
			return nil
		}
		_, err := to.Write(r.Data)
		return err
	})
	return int64(payload.Uint64(ok.Data)), err
}

// ListFiles tells what is in a folder, by name. more says that it is not all.
func (x *Sessions) ListFiles(ctx context.Context, k Key, terms Terms, folder string) (entries []Entry, more bool, err error) {
	if folder == "" {
		folder = "."
	}
	if folder != "." {
		if err := tier.CheckPath(folder); err != nil {
			return nil, false, err
		}
	}
	s, err := x.visit(ctx, k, terms)
	if err != nil {
		return nil, false, err
	}
	defer x.leave(s)
	return s.list(folder)
}

func (s *session) list(folder string) (entries []Entry, more bool, err error) {
	ok, err := s.last(s.ask(payload.Append(nil, payload.List, []byte(path.Clean(folder)))), func(r payload.Record) error {
		if r.Kind == payload.Entry && len(r.Data) > 17 {
			entries = append(entries, Entry{
				Name: string(r.Data[17:]), Kind: kinds[r.Data[0]], Size: int64(payload.Uint64(r.Data[1:])),
				Time: time.Unix(0, int64(payload.Uint64(r.Data[9:]))),
			})
		}
		return nil
	})
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, string(ok.Data) == "more", err
}

var kinds = map[byte]string{'f': "file", 'd': "folder", 'l': "link", '?': "other"}

// visit takes a turn in a session that exists.
func (x *Sessions) visit(ctx context.Context, k Key, terms Terms) (*session, error) {
	s, _, err := x.enter(ctx, k, terms, nil)
	return s, err
}
