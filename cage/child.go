package cage

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/cage/order"
	"sallyport.dev/sallyport/tier/cgroup"
	"sallyport.dev/sallyport/tier/child"
	"sallyport.dev/sallyport/tier/payload"
)

const (
	killPatience  = 30 * time.Second // until what was killed must be gone: it dies with its share of the processors
	startPatience = time.Minute      // until a child must have become its program, on a machine with much to do
	maxFiles      = 512              // descriptors of a child; see order.Kept
)

// A Spec is one program to start. Zero limits are the defaults named.
type Spec struct {
	Program *os.File // that it executes; stays the caller's
	Args    []string // argv, with the program's name first
	Env     []string // all of it
	Root    string   // folder that is its root, read-only: what its Program needs, and empty folders for Places; "" is an empty one
	Places  []Place  // more to see there
	Random  bool     // it may read /dev/urandom, for which an empty file is in Root

	Stdin, Stdout, Stderr *os.File   // nil is /dev/null; they stay the caller's
	Files                 []*os.File // 3, 4, …; they stay the caller's

	Memory  int64         // bytes of the control group
	CPUs    float64       // of the control group
	Data    int64         // bytes of private writable memory, reserved or used; 0: not bounded but by Memory
	CPU     time.Duration // of all its threads together; 0 means an hour
	Threads int           // 0 means 64
	Open    int           // descriptors; 0 means 64, and at most 512
	Connect bool          // it may connect to the unix sockets that it sees

	without protection // for tests and proofs: protections that are left out
}

// A Place is a folder of the host that a child sees, read-only, at a path of its
// root, where an empty folder is. It may connect to sockets in it.
type Place struct{ From, To string }

// A Child is one caged process. It is safe for concurrent use.
type Child struct {
	PID int // as this process sees it

	h     *House
	uid   int
	cmd   *exec.Cmd
	group cgroup.Group

	kill  sync.Once
	ended chan struct{}
	exit  Exit // valid once ended is closed
}

// An Exit is how a child ended.
type Exit struct {
	Status unix.WaitStatus
	OOM    bool  // it, or one of its threads, was refused memory of its control group
	Peak   int64 // bytes of memory that it ever took
	CPU    time.Duration
	Err    error // it is gone, but not all that it had
}

// Start starts a program. It returns when the child has given up everything and has
// become the program; an error means that the program never started. Who starts
// must Kill or Wait.
func (h *House) Start(s Spec) (*Child, error) { return h.start(h.spawn, s) }

// start starts a child that ends with the thread of a spawner.
func (h *House) start(on *child.Spawner, s Spec) (_ *Child, err error) {
	c := &Child{h: h, ended: make(chan struct{})}
	if err := h.take(c); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.give(c)
			err = failed(err)
		}
	}()
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	if c.group, err = h.dir.Groups.New(hex.EncodeToString(id[:]), s.Memory, s.CPUs); err != nil {
		return nil, err
	}
	if err := launch(on, c, s); err != nil {
		return nil, errors.Join(err, c.group.Kill(killPatience), c.group.Remove())
	}
	c.PID = c.cmd.Process.Pid
	go c.follow()
	h.launched(c)
	return c, nil
}

// launch starts the child and sees it become its program, or leaves no process.
func launch(on *child.Spawner, c *Child, s Spec) (err error) {
	var p child.Pipes
	defer func() { p.Finish(err != nil) }()
	s.without |= c.h.without
	ordersIn, orders := p.ToChild(false)
	report, reportIn := p.FromChild()
	if p.Err != nil {
		return p.Err
	}
	defer report.Close()
	c.cmd = &exec.Cmd{
		Path: c.h.path, Args: []string{Program}, Env: []string{}, Dir: "/",
		ExtraFiles:  append([]*os.File{ordersIn, s.Program, reportIn}, s.Files...),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Cloneflags: s.without.namespaces()},
	}
	if !s.without.has(dying) {
		c.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = stream(s.Stdin), writer(s.Stdout), writer(s.Stderr)
	if err := on.Start(c.cmd); err != nil {
		return err
	}
	for _, f := range []*os.File{ordersIn, reportIn} { // so that the report ends
		f.Close()
	}
	for _, f := range []*os.File{orders, report} {
		_ = f.SetDeadline(time.Now().Add(startPatience)) // pipes take deadlines
	}
	// The other end of the orders stays open until the child has looked at it.
	_, err = orders.Write(c.orders(s))
	said, readErr := io.ReadAll(report)
	orders.Close()
	if err = errors.Join(err, readErr, refusal(said)); err != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
	return err
}

// stream keeps a nil file from becoming a reader that is not nil.
func stream(f *os.File) io.Reader {
	if f == nil {
		return nil
	}
	return f
}

func writer(f *os.File) io.Writer {
	if f == nil {
		return nil
	}
	return f
}

// refusal is what a child said of why it did not become its program.
func refusal(said []byte) error {
	if len(said) < 4 {
		return nil
	}
	return fmt.Errorf("%s: %w", said[4:], unix.Errno(payload.Uint32(said)))
}

// orders are what the child is to give up, and become.
func (c *Child) orders(s Spec) []byte {
	var b []byte
	add := func(k payload.Kind, data string) { b = payload.Append(b, k, []byte(data)) }
	number := func(k payload.Kind, n uint32) { b = payload.Append(b, k, payload.AppendUint32(nil, n)) }
	for _, d := range c.group.Dirs() {
		if !s.without.has(group) {
			add(order.Join, d)
		}
	}
	if !s.without.has(hostNames) {
		add(order.Host, hostName)
	}
	switch {
	case s.without.has(files):
	case s.Root == "":
		add(order.Empty, c.h.emptyDir())
	default:
		add(order.Root, s.Root)
	}
	for _, p := range s.Places {
		add(order.Place, p.From+"\x00"+p.To)
	}
	if s.Random {
		add(order.Random, "")
	}
	if !s.without.has(privileges) {
		number(order.User, uint32(c.uid))
	}
	if !s.without.has(gaining) {
		add(order.NoNew, "")
	}
	if !s.without.has(dying) {
		add(order.Die, "")
	}
	if !s.without.has(descriptors) {
		add(order.Close, "")
	}
	for _, l := range s.limits() {
		b = payload.Append(b, order.Limit, payload.AppendUint64(payload.AppendUint32(nil, uint32(l.resource)), l.value))
	}
	if !s.without.has(landlock) && landlockVersion() > 0 {
		add(order.Landlock, "")
	}
	if !s.without.has(calls) {
		b = payload.Append(b, order.Filter, filterProgram(s.Connect))
	}
	number(order.Files, uint32(len(s.Files)))
	for _, a := range s.Args {
		add(order.Arg, a)
	}
	for _, e := range s.Env {
		add(order.Env, e)
	}
	add(order.Go, "")
	return b
}

const hostName = "cage"

type limit struct {
	resource int
	value    uint64
}

// limits are those of the process. Beside the control group they bound what it
// could do to the kernel, and they hold where nobody watches any more.
func (s Spec) limits() []limit {
	if s.without.has(limits) {
		return nil
	}
	cpu := cmp.Or(s.CPU, time.Hour)
	all := []limit{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, 0}, // it has no file to write
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_MSGQUEUE, 0},
		{unix.RLIMIT_CPU, uint64((cpu + time.Second - 1) / time.Second)},
		{unix.RLIMIT_NOFILE, uint64(min(cmp.Or(s.Open, 64), maxFiles))},
		{unix.RLIMIT_NPROC, uint64(cmp.Or(s.Threads, 64))}, // threads count, and the uid is its own
	}
	if s.Data > 0 {
		all = append(all, limit{unix.RLIMIT_DATA, uint64(s.Data)})
	}
	return all
}

// follow waits for the end of the process and removes what is left.
func (c *Child) follow() {
	_ = c.cmd.Wait() // its status tells
	if ws, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		c.exit.Status = unix.WaitStatus(ws)
	}
	c.exit.CPU = c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
	err := c.group.Kill(killPatience)
	c.exit.OOM, c.exit.Peak = c.group.OOMKills() > 0, c.group.Peak()
	c.exit.Err = errors.Join(err, c.group.Remove())
	c.h.give(c)
	close(c.ended)
}

// Kill ends the process. It is idempotent, and does not wait.
func (c *Child) Kill() {
	c.kill.Do(func() { _ = c.cmd.Process.Kill() }) // gone already: fine
}

// Ended is closed when the process and what it had are gone.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Wait returns how it ended, once it has.
func (c *Child) Wait() Exit {
	<-c.ended
	return c.exit
}

// Held reads back what its control group bounds it to.
func (c *Child) Held() (memory int64, cpus float64) { return c.group.Limits() }

// Group is its control group, while it lives.
func (c *Child) Group() cgroup.Group { return c.group }
