package main

import (
	"syscall"

	"sallyport.dev/sallyport/tier/payload"
)

// A given is the code and the input of the next program, in files of process 1
// that the program may read.
type given struct {
	code, stdin int // descriptors, -1 if not yet made
	err         error
}

func (g *given) write(fd *int, path string, data []byte) {
	if *fd < 0 && g.err == nil {
		_ = syscall.Unlink(path)
		*fd, g.err = syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o644)
	}
	if g.err == nil {
		g.err = writeFile(*fd, data)
	}
}

// seal makes both files whole, or tells why they are not.
func (g *given) seal() error {
	g.write(&g.code, payload.SessionCode, nil)
	g.write(&g.stdin, payload.SessionStdin, nil)
	for _, fd := range []*int{&g.code, &g.stdin} {
		if *fd >= 0 {
			syscall.Close(*fd)
			*fd = -1
		}
	}
	err := g.err
	g.err = nil
	if err != nil {
		g.drop()
	}
	return err
}

// drop frees the space of both.
func (g *given) drop() {
	_ = syscall.Unlink(payload.SessionCode)
	_ = syscall.Unlink(payload.SessionStdin)
}

func writeFile(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := syscall.Write(fd, data)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func jobFile(job uint32) string {
	var digits [10]byte
	i := len(digits)
	for {
		i--
		digits[i] = '0' + byte(job%10)
		if job /= 10; job == 0 {
			return payload.SessionDir + "/job-" + string(digits[i:])
		}
	}
}
