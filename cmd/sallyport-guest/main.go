// Command sallyport-guest is process 1 of a microVM, and /init of its initramfs.
//
// It loads the kernel's modules, mounts the image read-only as the root, and then
// does what the host says over the one channel that there is (see microvm/guest):
// become another than the snapshot that it was copied from (renew.go), make a
// sandbox in process, IPC and control-group namespaces of its own and start
// sallyport-init there (sandbox.go), carry its streams, and tell how it ended.
// sallyport-init makes the same world here as in gVisor.
//
// It holds no secret: who breaks out of the sandbox, and is root here, is still
// within the virtual machine.
package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/mux"
	"sallyport.dev/sallyport/tier/payload"
)

// garbage is how much there may be before it is collected after all.
const garbage = 24 << 20

func main() {
	if os.Getpid() != 1 {
		println("sallyport-guest: only for use in a microVM")
		os.Exit(2)
	}
	if len(os.Args) > 1 && os.Args[1] == insideWord {
		inside(os.Args[2:])
	}
	// Whatever runs first in a copy is translated, or faulted in, while somebody
	// waits: a collector of garbage need not.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(garbage)
	m := prepare()
	goFirst()
	conn, err := openChannel()
	must(err, "the channel")
	m.enter()
	m.session = mux.New(conn, false, guest.Streams()...)
	m.control = m.session.Stream(guest.Control)
	m.session.Start()
	m.say(guest.Hello, append(payload.AppendUint32(nil, guest.Protocol), kernel()...))
	m.serve()
}

// goFirst has the host heard, whatever programs do: threads of which this process has
// more already have a priority each, and what they start has theirs.
func goFirst() {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		id, _ := strconv.Atoi(t.Name())
		_ = unix.Setpriority(unix.PRIO_PROCESS, id, -20)
	}
}

// A machine is this guest.
type machine struct {
	session *mux.Session
	control *mux.Stream

	init     *os.File // the program sallyport-init
	group    int      // folder of the sandbox's control group
	random   *os.File
	identity identity
	limits   limits
	starved  atomic.Bool // the sandbox was ended for want of memory
	renewed  atomic.Bool // since memory was looked at
}

// serve does what the host says, for as long as there is one.
func (m *machine) serve() {
	for {
		k, data, err := payload.Read(m.control)
		if err != nil {
			fail(err, "the channel")
		}
		switch k {
		case guest.Renew:
			r, ok := guest.ParseRenewal(data)
			if !ok {
				fail(unix.EBADMSG, "a renewal")
			}
			m.renew(r)
		case guest.Clock:
			must(setClock(int64(payload.Uint64(data))), "the clock")
			m.say(guest.Clock, nil)
		case guest.Start:
			l, ok := guest.ParseLaunch(data)
			if !ok {
				fail(unix.EBADMSG, "a launch")
			}
			m.launch(l)
		case guest.Freeze:
			must(m.session.Hold(m.control, payload.Append(nil, guest.Frozen, nil)), "holding")
		case guest.Count:
			m.say(guest.Counted, m.ending(0).Append(nil))
		case guest.Thaw:
			m.session.Release()
		default:
			fail(unix.EBADMSG, "an unknown word")
		}
	}
}

func (m *machine) say(k payload.Kind, data []byte) {
	if _, err := m.control.Write(payload.Append(nil, k, data)); err != nil {
		fail(err, "the channel")
	}
}

// trouble tells the host that something cannot be done. The host decides.
func (m *machine) trouble(what string, err error) {
	m.say(guest.Trouble, []byte(what+": "+err.Error()))
}

func kernel() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // it does not fail
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// must ends the guest where it cannot go on: the host sees the end, and the
// console, if there is one, why.
func must(err error, what string) {
	if err != nil {
		fail(err, what)
	}
}

func fail(err error, what string) {
	_, _ = os.Stdout.WriteString("sallyport-guest: " + what + ": " + strings.TrimSpace(err.Error()) + "\n")
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	os.Exit(1)
}
