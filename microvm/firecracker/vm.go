package firecracker

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm/vmm"
)

// A vm is one Firecracker with its guest.
type vm struct {
	backend *Backend
	place   vmm.Place
	jail    *jail
	api     *client
	words   *words

	stale  bool // the guest has forgotten its connections: it was saved or restored
	paused bool

	once sync.Once
	dead error

	mu      sync.Mutex
	agent   net.Conn      // guarded by mu
	process *os.Process   // nil before it is started; guarded by mu
	gone    bool          // Kill was called; guarded by mu
	exited  chan struct{} // closed when the process is gone
}

// launch starts Firecracker in its jail, and returns when its API is there.
func (v *vm) launch(ctx context.Context) error {
	group, err := groupOf(v.place.Groups)
	if err != nil {
		return err
	}
	if err := v.spawn(group); err != nil {
		return unavailable("Firecracker's jailer could not be started", "", err)
	}
	if err := v.ready(ctx); err != nil {
		return err
	}
	if in, err := contains(v.place.Groups[0], v.process.Pid); err != nil || !in {
		return unavailable("Firecracker is not in the control group of its sandbox", "nothing would bound it, so it was ended", err)
	}
	return nil
}

// spawn starts the jailer, which becomes Firecracker. It is the first process of
// its namespace and a child of ours, so that it is ours to wait for.
func (v *vm) spawn(group string) error {
	said, err := v.words.listen()
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.Command(v.backend.Jailer, jailed(v.backend, v.place, group)...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = []string{}, "/", said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return errors.New("killed before it was started")
	}
	if err := v.place.Start(cmd); err != nil {
		return err
	}
	v.process, v.exited = cmd.Process, make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its last words
		close(v.exited)
	}()
	return nil
}

// ended reports whether Firecracker is gone.
func (v *vm) ended() bool {
	select {
	case <-v.exited:
		return true
	default:
		return false
	}
}

// ready waits for the API.
func (v *vm) ready(ctx context.Context) error {
	for {
		c, err := v.jail.dial(ctx, apiSocket)
		if err == nil {
			return c.Close()
		}
		switch {
		case ctx.Err() != nil:
			return unavailable("Firecracker's API was not there in time", "the host may be overloaded", errors.Join(ctx.Err(), err))
		case v.ended():
			return unavailable("Firecracker, or its jailer, ended before its API was there", "its last words are in the log", err)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// connect makes the channel to the agent. Its socket ends when Firecracker does.
func (v *vm) connect(ctx context.Context) error {
	c, err := dialGuest(ctx, v.jail, v.ended)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		c.Close()
		return net.ErrClosed
	}
	if v.agent != nil {
		v.agent.Close()
	}
	v.agent, v.stale = c, false
	return nil
}

// Agent implements vmm.VM.
func (v *vm) Agent() net.Conn {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.agent
}

// Pause implements vmm.VM.
func (v *vm) Pause(ctx context.Context) error {
	if v.paused {
		return nil
	}
	if err := v.api.do(ctx, request{"PATCH", "/vm", vmState{"Paused"}}); err != nil {
		return v.because(err)
	}
	v.paused = true
	return nil
}

// Resume implements vmm.VM. A guest that was saved or restored has forgotten its
// connections, so that there is a new channel afterwards.
func (v *vm) Resume(ctx context.Context) error {
	if v.paused {
		if err := v.api.do(ctx, request{"PATCH", "/vm", vmState{"Resumed"}}); err != nil {
			return v.because(err)
		}
		v.paused = false
	}
	if v.Agent() != nil && !v.stale {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return v.because(v.connect(ctx))
}

// Save implements vmm.VM.
func (v *vm) Save(ctx context.Context) (s vmm.Snapshot, err error) {
	was, began := v.paused, time.Now()
	if err := v.Pause(ctx); err != nil {
		return s, err
	}
	v.stale = true
	err = v.api.do(ctx, request{"PUT", "/snapshot/create", snapshotCreate{"Full", stateFile, memoryFile}})
	if !was {
		err = errors.Join(err, v.Resume(ctx))
	}
	s.Paused = time.Since(began)
	if err != nil {
		return s, v.because(err)
	}
	if s.Memory, err = v.jail.take(memoryFile, maxMemory); err != nil {
		return s, unavailable("the guest's memory was not saved", "", err)
	}
	if s.State, err = v.jail.take(stateFile, maxState); err != nil {
		s.Close()
		return vmm.Snapshot{}, unavailable("the state of the guest's devices was not saved", "", err)
	}
	return s, nil
}

// Bounds of what a Firecracker may leave as a snapshot.
const (
	maxMemory = 64 << 30
	maxState  = 8 << 20
)

// Kill implements vmm.VM.
func (v *vm) Kill() error {
	v.once.Do(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.gone = true
		v.dead = v.end()
		if v.agent != nil {
			v.agent.Close()
		}
		v.api.close()
		v.jail.close()
	})
	return v.dead
}

// end kills the process, with all that it started, since it is the first of its
// namespace; and waits until it is gone.
// Preconditions: mu is held.
func (v *vm) end() error {
	if v.process == nil {
		return nil
	}
	if err := v.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-v.exited:
		return nil
	case <-time.After(10 * time.Second):
		return unavailable("Firecracker was killed, but does not end", "restart sallyport-sandboxd", nil)
	}
}
