package cage

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/child"
)

const (
	provePatience = 2 * time.Minute  // for all of it, on a machine with much to do
	endPatience   = 20 * time.Second // for a child to end with who started it
	proveMemory   = 48 << 20         // of a child that tries things
	proveData     = 128 << 20
	proveThreads  = 16
	proveOpen     = 16
)

// Prove tries, in cages, what each protection must deny: with that one and
// without those that would deny it as well, and without it, where the same must
// succeed, so that an attempt that fails for another reason proves nothing. The
// error names a protection that does not hold. The answer is kept.
func (h *House) Prove(ctx context.Context) (Proof, error) {
	h.mu.Lock()
	known := h.proof
	h.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, provePatience)
	defer cancel()
	b, err := h.lay()
	if err != nil {
		return Proof{}, failed(err)
	}
	defer b.clear()
	p := Proof{Landlock: landlockVersion()}
	for _, row := range b.rows(p.Landlock) {
		why := row.absent
		if why == "" {
			why = b.prove(ctx, row)
		}
		f := finding(row.name, why)
		f.Optional = row.optional
		p.Findings = append(p.Findings, f)
	}
	p.Findings = append(p.Findings, finding("memory", b.proveMemory(ctx)), finding("ends with its host", b.proveEnd(ctx)))
	if ctx.Err() != nil {
		return p, ctx.Err()
	}
	for _, f := range p.Findings {
		if !f.Holds && !f.Optional {
			return p, tier.Unavailable("see docs/operations.md for what a host must offer", "this host cannot confine a process: %s: %s", f.Name, f.Detail)
		}
	}
	h.mu.Lock()
	h.proof = &p
	h.mu.Unlock()
	return p, nil
}

func finding(name, lack string) Finding { return Finding{Name: name, Holds: lack == "", Detail: lack} }

// A bait is what cages are to keep their programs from.
type bait struct {
	h        *House
	listener net.Listener // TCP
	abstract net.Listener // a unix socket without a file
	name     string       // of it
	canary   string       // a file
	fresh    string       // a file that is not there
	scratch  *os.File     // descriptor 3 of those who try
	key      int          // of a shared memory segment, 0 where there are none
	segment  int
	leak     int // a descriptor that children inherit, if nothing closes it
}

// lay makes the bait.
func (h *House) lay() (b *bait, err error) {
	b = &bait{h: h, canary: filepath.Join(h.cfg.Dir, "canary"), fresh: filepath.Join(h.cfg.Dir, "fresh"), name: "sallyport-" + rand.Text()}
	defer func() {
		if err != nil {
			b.clear()
		}
	}()
	if b.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return b, err
	}
	if b.abstract, err = net.Listen("unix", "@"+b.name); err != nil {
		return b, err
	}
	if err := os.WriteFile(b.canary, []byte("canary"), 0o600); err != nil {
		return b, err
	}
	if b.scratch, err = os.Create(filepath.Join(h.cfg.Dir, "scratch")); err != nil {
		return b, err
	}
	if b.leak, err = unix.FcntlInt(b.scratch.Fd(), unix.F_DUPFD, 100); err != nil { // not closed at execution
		return b, err
	}
	var number [4]byte
	_, _ = rand.Read(number[:]) // never fails
	key := 1 + int(binary.NativeEndian.Uint32(number[:])>>2)
	if b.segment, err = unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o600); err == nil {
		b.key = key
	} else if !errors.Is(err, unix.ENOSYS) {
		return b, err
	}
	return b, nil
}

func (b *bait) clear() {
	for _, l := range []net.Listener{b.listener, b.abstract} {
		if l != nil {
			l.Close()
		}
	}
	if b.scratch != nil {
		b.scratch.Close()
	}
	if b.leak != 0 {
		unix.Close(b.leak)
	}
	if b.key != 0 {
		_, _ = unix.SysvShmCtl(b.segment, unix.IPC_RMID, nil)
	}
	for _, f := range []string{"canary", "fresh", "scratch"} {
		_ = os.Remove(filepath.Join(b.h.cfg.Dir, f))
	}
}

// prove says why a protection is not proven, or "".
func (b *bait) prove(ctx context.Context, row proof) string {
	for _, run := range []struct {
		without protection
		denied  bool
		when    string
	}{{row.alone | row.what, false, "without it"}, {row.alone, true, "with it alone"}, {0, true, "with all others"}} {
		got, err := b.try(ctx, Spec{without: run.without}, row.tries())
		if err != nil {
			return fmt.Sprintf("%s, the attempt failed: %v", run.when, err)
		}
		for _, a := range row.attempts {
			name, _, _ := strings.Cut(a.try, "=")
			n, told := got[name+" "+a.try]
			switch {
			case !told:
				return fmt.Sprintf("%s, %q gave no answer", run.when, name)
			case run.denied && !a.denied(n):
				return fmt.Sprintf("%s, %q was not denied (%d)", run.when, name, n)
			case !run.denied && !a.always && a.denied(n):
				return fmt.Sprintf("%s, %q was denied too (%d): it proves nothing", run.when, name, n)
			}
		}
		_ = os.Remove(b.fresh)
	}
	return ""
}

// try has a caged child make attempts, and returns what it said of each, by the
// name and the words of the attempt.
func (b *bait) try(ctx context.Context, s Spec, attempts []string) (map[string]int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	s.Program, s.Args = b.h.program, append([]string{Program, "attempt"}, attempts...)
	s.Stdout, s.Files = w, []*os.File{b.scratch}
	s.Data, s.Threads, s.Open, s.CPU = proveData, proveThreads, proveOpen, 10*time.Second
	s.Memory, s.CPUs = cmp.Or(s.Memory, 4*proveMemory), 1
	c, err := b.h.Start(s)
	w.Close()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, c.Kill)
	defer stop()
	got := map[string]int{}
	i := 0
	for lines := bufio.NewScanner(r); lines.Scan() && i < len(attempts); i++ {
		name, n, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.Atoi(n); err == nil {
			got[name+" "+attempts[i]] = v
		}
	}
	c.Kill()
	if e := c.Wait(); e.OOM {
		return got, errKilled
	} else if e.Err != nil {
		return got, e.Err
	}
	return got, ctx.Err()
}

var errKilled = errors.New("out of memory")

// proveMemory proves the control group: what takes more than it may is killed.
func (b *bait) proveMemory(ctx context.Context) string {
	touch := []string{fmt.Sprintf("touch=%d", proveMemory>>20)}
	if got, err := b.try(ctx, Spec{Memory: 4 * proveMemory}, touch); err != nil || len(got) != 1 {
		return fmt.Sprintf("within the limit, it failed too (%v): it proves nothing", err)
	}
	if _, err := b.try(ctx, Spec{Memory: proveMemory / 2}, touch); !errors.Is(err, errKilled) {
		return fmt.Sprintf("a child took twice the memory that its control group has (%v)", err)
	}
	return ""
}

// proveEnd proves that a child ends with the thread that started it, which is how
// one ends with this process.
func (b *bait) proveEnd(ctx context.Context) string {
	own := child.NewSpawner()
	r, w, err := os.Pipe()
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	c, err := b.h.start(own, Spec{Program: b.h.program, Args: []string{Program, "attempt", "uid", "spin"}, Stdout: w, Memory: proveMemory, CPUs: 1, CPU: 2 * provePatience})
	w.Close()
	if err != nil {
		return err.Error()
	}
	defer c.Kill()
	if _, err := r.Read(make([]byte, 1)); err != nil && err != io.EOF {
		return err.Error()
	}
	own.Stop()
	late := time.NewTimer(endPatience) // less than its time of the processors, which ends it too
	defer late.Stop()
	select {
	case <-c.Ended():
		return ""
	case <-late.C:
		return "a child outlived who started it"
	case <-ctx.Done():
		return "a child outlived who started it"
	}
}

// A proof is how one protection is proven.
type proof struct {
	name     string
	what     protection
	alone    protection // left out, so that it alone denies
	attempts []attempt
	optional bool
	absent   string // why there is none
}

// An attempt is something to try. The program prints a number for it: mostly an
// errno, 0 if it succeeded.
type attempt struct {
	try    string
	denied func(int) bool
	always bool // it fails without the protection too, or must not be tried without it
}

func (p proof) tries() (all []string) {
	for _, a := range p.attempts {
		all = append(all, a.try)
	}
	return all
}

func failing(n int) bool { return n != 0 }

func with(errno ...unix.Errno) func(int) bool {
	return func(n int) bool { return slices.Contains(errno, unix.Errno(n)) }
}
