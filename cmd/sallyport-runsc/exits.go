package main

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"sallyport.dev/sallyport/tier/payload"
)

// exitsName is how the trace configuration names the sink.
const exitsName = "sallyport-exits"

// An exitsSink tells the host, in the stream of process 1's reports, when the
// program, which is the first process that process 1 started, and every other
// one have ended and left no results: the record Over. It tells so when the last
// of them runs no more. Process 1 learns it only when its memory was taken apart
// too, milliseconds later; where there is more to tell, it is process 1 that does.
type exitsSink struct {
	seccheck.SinkDefaults
	out *fd.FD

	mu      sync.Mutex
	program int32 // thread group, 0 before it is started
	threads int32 // of it
	others  int32 // threads of other processes, but process 1
	status  uint32
	bus     bool // a process ended by SIGBUS: process 1 looks whether the disk is full
	results folder
}

const processOne = 1

func registerExitsSink() {
	seccheck.RegisterSink(seccheck.SinkDesc{Name: exitsName, Setup: setupPipe, New: func(_ map[string]any, out *fd.FD) (seccheck.Sink, error) {
		if out == nil {
			return nil, os.ErrInvalid
		}
		return &exitsSink{out: out}, nil
	}})
}

// Name implements seccheck.Sink.
func (s *exitsSink) Name() string { return exitsName }

// Stop implements seccheck.Sink.
func (s *exitsSink) Stop() { s.out.Close() }

// Clone implements seccheck.Sink. It is called before the new thread runs.
func (s *exitsSink) Clone(ctx context.Context, _ seccheck.FieldSet, info *pb.CloneInfo) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch group := info.CreatedThreadGroupId; {
	case group == processOne:
	case s.program == 0:
		s.program, s.threads = group, 1
		s.results.open(ctx)
	case s.program == group:
		s.threads++
	default:
		s.others++
	}
	return nil
}

// TaskExit implements seccheck.Sink. It is called by the thread itself, which
// does nothing more for the program.
func (s *exitsSink) TaskExit(ctx context.Context, _ seccheck.FieldSet, info *pb.TaskExit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bus = s.bus || unix.WaitStatus(info.ExitStatus).Signal() == unix.SIGBUS
	switch info.ContextData.GetThreadGroupId() {
	case processOne:
		return nil
	case s.program:
		s.threads--
		s.status = uint32(info.ExitStatus)
	default:
		s.others--
	}
	if s.threads == 0 && s.others == 0 && !s.bus && s.results.unchanged(ctx) {
		b := payload.Append(nil, payload.Over, payload.AppendUint32(nil, s.status))
		_, _ = unix.Write(s.out.FD(), b) // one that the host no longer reads is of no use
	}
	return nil
}

// A folder of the sandbox, as it was when it was opened.
type folder struct {
	at      vfs.VirtualDentry
	changed linux.StatxTimestamp
	ok      bool
}

// open finds the folder of results.
// Preconditions: ctx is of process 1.
func (f *folder) open(ctx context.Context) {
	t := kernel.TaskFromContext(ctx)
	if t == nil {
		return
	}
	root := t.MountNamespace().Root(ctx)
	defer root.DecRef(ctx)
	at, err := t.Kernel().VFS().GetDentryAt(ctx, t.Credentials(), &vfs.PathOperation{
		Root: root, Start: root, Path: fspath.Parse(payload.OutputDir),
	}, &vfs.GetDentryOptions{CheckSearchable: true})
	if err == nil {
		f.at = at
		f.changed, f.ok = f.time(ctx)
	}
}

// time tells when the folder's entries changed last; no program can set it back.
func (f *folder) time(ctx context.Context) (linux.StatxTimestamp, bool) {
	t := kernel.TaskFromContext(ctx)
	if t == nil || !f.at.Ok() {
		return linux.StatxTimestamp{}, false
	}
	st, err := t.Kernel().VFS().StatAt(ctx, auth.NewRootCredentials(t.Kernel().RootUserNamespace()),
		&vfs.PathOperation{Root: f.at, Start: f.at}, &vfs.StatOptions{Mask: linux.STATX_CTIME})
	return st.Ctime, err == nil && st.Mask&linux.STATX_CTIME != 0
}

func (f *folder) unchanged(ctx context.Context) bool {
	now, ok := f.time(ctx)
	return f.ok && ok && now == f.changed
}
