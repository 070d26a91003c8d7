// Command sallyport-cage is the last step before a confined program: it gives up
// what its orders (cage/order) say, and becomes the program. A step that fails
// ends it, and the program never starts.
//
// As `sallyport-cage attempt` it is such a program itself: it tries what a caged
// program must not be able to do, and tells what became of it (attempt.go).
//
// It uses no package beyond syscall and os, since it starts once per process, and
// runs on one thread: what it gives up belongs to a thread until it is executed.
package main

import (
	"os"
	"runtime"
	"syscall"

	"sallyport.dev/sallyport/cage/order"
	"sallyport.dev/sallyport/tier/payload"
)

func main() {
	runtime.LockOSThread()
	if len(os.Args) > 1 && os.Args[1] == "attempt" {
		attempt(os.Args[2:])
		return
	}
	for _, fd := range []int{order.FD, order.Program, order.Report} {
		if _, err := fcntl(fd, syscall.F_SETFD, syscall.FD_CLOEXEC); err != nil {
			println("sallyport-cage: only for use by sallyport-sandboxd")
			os.Exit(2)
		}
	}
	o := read()
	o.enter()
	o.become()
}

// An orders is what is to be given up.
type orders struct {
	groups   []string
	host     string
	root     string // "" stays the host's
	empty    bool   // a file system of its own over root
	places   []string
	random   bool
	uid      int // 0 stays
	noNew    bool
	die      bool
	close    bool
	limits   []limit
	landlock bool
	filter   []byte
	files    int
	argv     []string
	env      []string
}

type limit struct {
	resource int
	value    uint64
}

// input reads descriptor FD.
type input struct{}

func (input) Read(b []byte) (int, error) {
	n, err := syscall.Read(order.FD, b)
	if n == 0 && err == nil && len(b) > 0 {
		err = syscall.EPIPE
	}
	return max(n, 0), err
}

func read() (o orders) {
	for {
		k, data, err := payload.Read(input{})
		must(err, "reading orders")
		text := string(data)
		switch k {
		case order.Join:
			o.groups = append(o.groups, text)
		case order.Host:
			o.host = text
		case order.Root:
			o.root = text
		case order.Empty:
			o.root, o.empty = text, true
		case order.Place:
			o.places = append(o.places, text)
		case order.Random:
			o.random = true
		case order.User:
			o.uid = int(payload.Uint32(data))
		case order.NoNew:
			o.noNew = true
		case order.Die:
			o.die = true
		case order.Close:
			o.close = true
		case order.Limit:
			o.limits = append(o.limits, limit{int(payload.Uint32(data)), payload.Uint64(data[4:])})
		case order.Landlock:
			o.landlock = true
		case order.Filter:
			o.filter = data
		case order.Files:
			o.files = int(payload.Uint32(data))
		case order.Arg:
			o.argv = append(o.argv, text)
		case order.Env:
			o.env = append(o.env, text)
		case order.Go:
			return o
		default:
			must(syscall.EINVAL, "an unknown order")
		}
	}
}

// must ends the program with a report, unless err is nil.
func must(err error, what string) {
	if err == nil {
		return
	}
	b := append(payload.AppendUint32(nil, uint32(max(0, number(err)))), what...)
	_, _ = syscall.Write(reportFD, b)
	os.Exit(126)
}
