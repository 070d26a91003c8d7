package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"
)

// sinkName is how the trace configuration names the sink.
const sinkName = "sallyport-limits"

// A limitsSink watches how system calls end inside the sandbox's kernel and
// writes one byte to its pipe when a limit was the reason: 'p' when a fork was
// refused for want of processes, 'd' when a write was refused for want of space;
// not more often than is of use, so that the pipe is never full. The program can neither see nor stop it, and polling for
// peaks, which misses short ones, is not needed.
type limitsSink struct {
	seccheck.SinkDefaults
	out       *fd.FD
	forks     []uint64 // numbers of the system calls that make tasks
	processes meter
	disk      meter
}

// A meter bounds how often something is told.
type meter struct{ count, last atomic.Int64 }

const (
	maxTold   = 1000
	toldEvery = 10 * time.Millisecond
)

func registerLimitsSink() {
	seccheck.RegisterSink(seccheck.SinkDesc{Name: sinkName, Setup: setupPipe, New: newLimitsSink})
}

// setupPipe runs outside the sandbox; config names the inherited pipe.
func setupPipe(config map[string]any) (*os.File, error) {
	n, ok := config["fd"].(float64)
	if !ok {
		return nil, errors.New("a sink: no fd in the configuration")
	}
	dup, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("a sink: fd %v: %w", n, err)
	}
	return os.NewFile(uintptr(dup), "sink"), nil
}

func newLimitsSink(config map[string]any, out *fd.FD) (seccheck.Sink, error) {
	forks, _ := config["forks"].([]any)
	if out == nil || len(forks) == 0 {
		return nil, fmt.Errorf("%s: want a pipe and the forks", sinkName)
	}
	oneAtATime() // a sink is made when the sandbox's kernel is, and before any program
	s := &limitsSink{out: out}
	for _, f := range forks {
		n, _ := f.(float64)
		s.forks = append(s.forks, uint64(n))
	}
	return s, nil
}

// Name implements seccheck.Sink.
func (s *limitsSink) Name() string { return sinkName }

// Stop implements seccheck.Sink.
func (s *limitsSink) Stop() { s.out.Close() }

// RawSyscall implements seccheck.Sink.
func (s *limitsSink) RawSyscall(_ context.Context, _ seccheck.FieldSet, info *pb.Syscall) error {
	if info.Exit == nil {
		return nil
	}
	switch unix.Errno(info.Exit.Errorno) {
	case unix.EAGAIN:
		if slices.Contains(s.forks, info.Sysno) {
			s.tell(&s.processes, 'p')
		}
	case unix.ENOSPC:
		s.tell(&s.disk, 'd')
	default:
	}
	return nil
}

func (s *limitsSink) tell(m *meter, b byte) {
	now, last := time.Now().UnixNano(), m.last.Load()
	if now-last < int64(toldEvery) || !m.last.CompareAndSwap(last, now) || m.count.Add(1) > maxTold {
		return
	}
	s.out.Write([]byte{b}) //nolint:errcheck // nobody listens any more: nothing to do
}
