package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/tier/stay"
)

// freezePatience is how long a box may take to be frozen.
const freezePatience = 60 * time.Second

// Freeze implements stay.Sleeper.
func (b *Box) Freeze(to io.Writer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := b.h.runtime(b.s, b.h.usual(), "freeze", b.s.id)
	cmd.ExtraFiles = []*os.File{w}
	var said keepFirst
	cmd.Stderr = &said
	err = b.h.spawn.Start(cmd)
	w.Close()
	if err != nil {
		return err
	}
	late := time.AfterFunc(freezePatience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	n, err := io.Copy(to, r)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	if waitErr := cmd.Wait(); waitErr != nil || n == 0 {
		err = errors.Join(err, waitErr, fmt.Errorf("after %d bytes: %s", n, said.b))
	}
	return errors.Join(err, b.Destroy())
}

type keepFirst struct{ b []byte }

func (k *keepFirst) Write(b []byte) (int, error) {
	k.b = append(k.b, b[:min(len(b), 2048-min(len(k.b), 2048))]...)
	return len(b), nil
}

// Wake implements stay.Sleeper.
func (b *Box) Wake(ctx context.Context, r tier.Request, from io.Reader) (stay.Kept, error) {
	again, err := b.Thaw(ctx, r, from)
	if err != nil {
		return stay.Kept{}, err
	}
	return again.kept(), nil
}

// Thaw makes a box again from what Freeze wrote. r is what the box was made with.
func (b *Box) Thaw(ctx context.Context, r tier.Request, from io.Reader) (*Box, error) {
	h := b.h
	r.Argv, r.Files, r.Stdin = []string{"-"}, nil, nil
	image, _, err := h.images.Find(h.cfg.Images, r.Image)
	if err != nil {
		return nil, err
	}
	state, err := memoryFile(from)
	if err != nil {
		return nil, err
	}
	defer state.Close()
	again := &Box{h: h, way: b.way, s: h.newSandbox(context.WithoutCancel(ctx), r)}
	again.s.held, again.bounds = b.s.held, b.bounds // the same memory, of the same image
	if err := h.bring(again.s, r, func() error { return again.start(h.usual(), image, state) }, h.tryWay); err != nil {
		return nil, err
	}
	again.takeWay()
	if err := again.answers(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("thawing: %w: %s", err, again.lastWords()), again.Destroy())
	}
	h.up(again.s)
	return again, nil
}

// memoryFile holds what it reads in a file that is nowhere but in memory.
func memoryFile(from io.Reader) (*os.File, error) {
	fd, err := unix.MemfdCreate("state", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "state")
	if _, err := io.Copy(f, from); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// answers waits until process 1 answers.
func (b *Box) answers(ctx context.Context) error {
	if _, err := b.In.Write(payload.Append(nil, payload.Abort, nil)); err != nil {
		return err
	}
	_, err := b.expect(ctx, payload.OK)
	return err
}

func (b *Box) lastWords() []byte {
	b.s.stderr.Settle()
	return b.s.stderr.Kept
}
