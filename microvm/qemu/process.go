package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm/snapshot"
	"sallyport.dev/sallyport/microvm/vmm"
)

// A vm is one QEMU.
type vm struct {
	cmd    *exec.Cmd
	life   *os.File // closed: QEMU's start comes to nothing
	agent  net.Conn
	qmp    *monitor
	memory *os.File // that it was made of, sealed
	size   int64
	save   *os.File // where it writes its state
	words  *words   // what it says itself

	once sync.Once
	dead error
}

// start starts QEMU, and returns when it can be talked to. It takes s.Memory over.
func (b Backend) start(ctx context.Context, p vmm.Place, m vmm.Machine, s vmm.Snapshot) (*vm, error) {
	v := &vm{memory: s.Memory, size: m.Memory, words: &words{}}
	theirs, err := v.connect()
	if err != nil {
		return nil, errors.Join(err, closeAll(theirs), v.Kill())
	}
	files := append(theirs[:len(theirs):len(theirs)], s.Memory, m.Root, v.save)
	if s.State != nil {
		files = append(files, s.State)
	} else {
		files = append(files, m.Kernel, m.Initrd)
	}
	v.cmd = exec.Command(p.Init, b.confined(p, b.arguments(m, s.State != nil))...)
	v.cmd.ExtraFiles, v.cmd.Env, v.cmd.Dir = files, []string{}, "/"
	v.cmd.Stdout, v.cmd.Stderr = v.words, v.words
	v.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	err = p.Start(v.cmd)
	if err = errors.Join(err, closeAll(theirs)); err != nil { // closed here, they end with QEMU
		return nil, errors.Join(err, v.Kill())
	}
	if err := v.qmp.greet(ctx); err != nil {
		return nil, errors.Join(v.because(err), v.Kill())
	}
	return v, nil
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// connect makes what joins us to QEMU, and returns QEMU's ends, in the order of
// its descriptors.
func (v *vm) connect() (theirs []*os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	v.life = w
	theirs = append(theirs, r)
	for range 2 {
		ours, their, err := pair()
		if err != nil {
			return theirs, err
		}
		theirs = append(theirs, their)
		if v.agent == nil {
			v.agent = ours
		} else {
			v.qmp = newMonitor(ours)
		}
	}
	v.save, err = snapshot.NewState()
	return theirs, err
}

// pair makes a socket pair: our end and the child's.
func pair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// confined are the arguments with which sallyport-init becomes QEMU.
func (b Backend) confined(p vmm.Place, args []string) []string {
	words := []string{"confine", fmt.Sprint(p.UID), strings.Join(p.Groups, ":"), fmt.Sprint(fdLife), p.Dir}
	for _, shown := range []string{b.program(), "/usr/lib", "/usr/lib64", "/usr/share/qemu", "/usr/share/seabios"} {
		if st, err := os.Lstat(shown); err == nil && st.Mode()&os.ModeSymlink == 0 {
			words = append(words, "show:"+shown)
		}
	}
	for _, dir := range []string{"/lib", "/lib64"} {
		if to, err := os.Readlink(dir); err == nil {
			words = append(words, "link:"+to+":"+dir)
		} else if _, err := os.Stat(dir); err == nil {
			words = append(words, "show:"+dir)
		}
	}
	words = append(words, "dev:/dev/null", "dev:/dev/urandom")
	if b.Accel == KVM {
		words = append(words, "dev:/dev/kvm")
	}
	return append(append(words, "--", b.program(), "qemu"), args...)
}

// Agent implements vmm.VM.
func (v *vm) Agent() net.Conn { return v.agent }

// Pause implements vmm.VM.
func (v *vm) Pause(ctx context.Context) error {
	_, err := v.qmp.call(ctx, "stop", nil)
	return v.because(err)
}

// Resume implements vmm.VM.
func (v *vm) Resume(ctx context.Context) error {
	_, err := v.qmp.call(ctx, "cont", nil)
	return v.because(err)
}

// Load implements vmm.Parked.
func (v *vm) Load(ctx context.Context) error {
	_, err := v.qmp.call(ctx, "migrate-incoming", map[string]any{"uri": fmt.Sprintf("fd:%d", fdKernel)})
	for err == nil {
		var status string
		if status, err = v.status(ctx); status != "inmigrate" && err == nil {
			if status != "paused" {
				err = fmt.Errorf("the snapshot's state could not be read: QEMU is %q", status)
			}
			break
		}
	}
	return v.because(err)
}

func (v *vm) status(ctx context.Context) (string, error) {
	var s struct {
		Status string `json:"status"`
	}
	err := v.qmp.ask(ctx, "query-status", nil, &s)
	return s.Status, err
}

// because adds what QEMU said to an error.
func (v *vm) because(err error) error {
	if said := v.words.String(); err != nil && said != "" {
		return fmt.Errorf("%w (QEMU says: %s)", err, said)
	}
	return err
}

// Kill implements vmm.VM.
func (v *vm) Kill() error {
	v.once.Do(func() {
		if v.cmd != nil && v.cmd.Process != nil {
			_ = v.cmd.Process.Kill() // it may be gone
			var exit *exec.ExitError
			if err := v.cmd.Wait(); err != nil && !errors.As(err, &exit) {
				v.dead = err
			}
		}
		if v.agent != nil {
			v.agent.Close()
		}
		if v.qmp != nil {
			v.qmp.conn.Close()
		}
		for _, f := range []*os.File{v.life, v.memory, v.save} {
			if f != nil {
				f.Close()
			}
		}
	})
	return v.dead
}

// Ended implements vmm.Teller.
func (v *vm) Ended() string {
	if v.cmd == nil || v.cmd.ProcessState == nil {
		return ""
	}
	return strings.TrimSuffix("QEMU: "+v.cmd.ProcessState.String()+"; "+v.words.String(), "; ")
}

// words keeps the first of what QEMU says.
type words struct {
	mu  sync.Mutex
	all []byte
}

const maxWords = 2 << 10

// Write implements io.Writer.
func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, b[:min(len(b), maxWords-len(w.all))]...)
	return len(b), nil
}

// String tells it in one line.
func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.ReplaceAll(strings.TrimSpace(string(w.all)), "\n", "; ")
}
