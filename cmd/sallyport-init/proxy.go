package main

import (
	"sync/atomic"
	"syscall"
	"time"

	"sallyport.dev/sallyport/tier/payload"
)

// The proxy is the sandbox's way out, if there is one: it listens on the
// loopback interface, since programs can be told of a proxy by host and port
// only, and joins each connection to the broker's socket. Where nothing may be
// reached it answers by itself, so that a program, and whoever reads its
// output, takes a rule for a rule and not for a fault of the network.

const (
	proxyConns = 64 // at once; more wait in the queue of the socket
	proxyQueue = 128
	headBytes  = 4096
)

// startProxy listens and then serves in the background.
func startProxy(socket string) {
	l, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(err, "the proxy's socket")
	addr := &syscall.SockaddrInet4{Port: payload.ProxyPort, Addr: [4]byte{127, 0, 0, 1}}
	must(syscall.Bind(l, addr), "the proxy's address")
	must(syscall.Listen(l, proxyQueue), "the proxy")
	go func() {
		told := &tellings{}
		slots := make(chan struct{}, proxyConns)
		for {
			c, _, err := syscall.Accept4(l, syscall.SOCK_CLOEXEC)
			if err != nil {
				if err == syscall.EINTR || err == syscall.ECONNABORTED {
					continue
				}
				return
			}
			slots <- struct{}{}
			go func() {
				defer func() { <-slots }()
				if socket == "" {
					denyAll(c, told)
				} else {
					carry(c, socket)
				}
				syscall.Close(c)
			}()
		}
	}()
}

// carry carries bytes between a program and the broker until both are done.
func carry(c int, socket string) {
	up, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer syscall.Close(up)
	if err := syscall.Connect(up, &syscall.SockaddrUnix{Name: socket}); err != nil {
		writeAll(c, []byte(gone))
		return
	}
	done := make(chan struct{})
	go func() {
		copyFD(c, up)
		close(done)
	}()
	copyFD(up, c)
	<-done
}

// copyFD copies until from ends, and then says so to to.
func copyFD(to, from int) {
	buf := make([]byte, 16<<10)
	for {
		n, err := syscall.Read(from, buf)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || !writeAll(to, buf[:n]) {
			break
		}
	}
	_ = syscall.Shutdown(to, syscall.SHUT_WR)
	_ = syscall.Shutdown(from, syscall.SHUT_RD)
}

func writeAll(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}

// The answers below have the shape of the broker's own (egress.Denied).
const (
	refusal = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nSallyport-Egress: denied; reason=not_listed\r\nConnection: close\r\n\r\n" +
		`{"error":"egress_denied","reason":"not_listed","message":"this sandbox may reach nothing","hint":"this is a rule, not a fault: do not look for another way; an operator can allow HOST:PORT in the tool's egress list"}` + "\n"
	gone = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nSallyport-Egress: denied; reason=broker_gone\r\nConnection: close\r\n\r\n" +
		`{"error":"egress_denied","reason":"broker_gone","message":"the way out of this sandbox is closed","hint":"run it again; if it persists, an operator sees why with sallyport doctor"}` + "\n"
)

// tellings bounds what is reported: so many a minute, however long a program lives.
type tellings struct {
	minute atomic.Int64
	count  atomic.Int32
}

func (t *tellings) may() bool {
	minute := time.Now().Unix() / 60
	if t.minute.Swap(minute) != minute {
		t.count.Store(0)
	}
	return t.count.Add(1) <= payload.MaxDenied
}

// denyAll reads what a program asks for, reports it and refuses.
func denyAll(c int, told *tellings) {
	head := make([]byte, 0, headBytes)
	for len(head) < headBytes && !ended(head) {
		n, err := syscall.Read(c, head[len(head):headBytes])
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 {
			break
		}
		head = head[:len(head)+n]
	}
	if t := asked(head); t != nil && told.may() {
		report(payload.Denied, t)
	}
	writeAll(c, []byte(refusal))
	_ = syscall.Shutdown(c, syscall.SHUT_WR)
}

func ended(head []byte) bool {
	n := len(head)
	return n >= 4 && string(head[n-4:]) == "\r\n\r\n"
}

// asked is the second word of a request line, as it was written.
func asked(head []byte) []byte {
	start := -1
	for i, b := range head {
		switch {
		case b == ' ' && start < 0:
			start = i + 1
		case start >= 0 && (b == ' ' || b == '\r' || b == '\n' || i-start > 300):
			return head[start:i]
		}
	}
	return nil
}

// trust writes the certificates that programs are told to trust: the image's,
// and one more. The file is root's, in a folder with the sticky bit.
func trust(ca []byte) {
	const all = "/etc/ssl/certs/ca-certificates.crt"
	to, err := syscall.Open(payload.Bundle, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o644)
	must(err, payload.Bundle)
	if from, err := syscall.Open(all, syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
		buf := make([]byte, 64<<10)
		for {
			n, err := syscall.Read(from, buf)
			if n <= 0 || err != nil {
				break
			}
			if !writeAll(to, buf[:n]) {
				fail(syscall.ENOSPC, payload.Bundle)
			}
		}
		syscall.Close(from)
	}
	if !writeAll(to, ca) {
		fail(syscall.ENOSPC, payload.Bundle)
	}
	must(syscall.Close(to), payload.Bundle)
}
