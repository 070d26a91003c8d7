package main

import (
	"sync"
	"syscall"

	"sallyport.dev/sallyport/tier/payload"
)

// Each system call costs tens of microseconds where the sandbox has been idle:
// what is there is read at once, and what can wait is written together.

// unread is what was read of the stream and not yet taken. One goroutine reads.
var unread struct {
	buf  [32 << 10]byte
	rest []byte
}

// pending tells whether a record may be there although the descriptor has
// nothing to read.
func pending() bool { return len(unread.rest) > 0 }

func readRecord() (payload.Kind, []byte, error) {
	var h [payload.HeaderSize]byte
	if err := readFull(h[:]); err != nil {
		return 0, nil, err
	}
	k, n, err := payload.Header(h[:])
	if err != nil {
		return 0, nil, syscall.EMSGSIZE
	}
	data := make([]byte, n)
	return k, data, readFull(data)
}

func readFull(b []byte) error {
	for len(b) > 0 {
		if len(unread.rest) > 0 {
			n := copy(b, unread.rest)
			b, unread.rest = b[n:], unread.rest[n:]
			continue
		}
		to := unread.buf[:]
		if len(b) > len(to) {
			to = b
		}
		n, err := syscall.Read(fdPayload, to)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case n == 0:
			return syscall.EPIPE
		case len(b) > len(unread.buf):
			b = b[n:]
		default:
			unread.rest = to[:n]
		}
	}
	return nil
}

var reports struct {
	sync.Mutex // keeps records whole, and in their order
	held       []byte
}

// hold makes a record part of the next report.
func hold(k payload.Kind, data []byte) {
	reports.Lock()
	defer reports.Unlock()
	reports.held = payload.Append(reports.held, k, data)
}

func report(k payload.Kind, data []byte) {
	hold(k, data)
	flush()
}

func flush() {
	reports.Lock()
	defer reports.Unlock()
	for b := reports.held; len(b) > 0; {
		n, err := syscall.Write(fdReport, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			syscall.Exit(3)
		}
		b = b[n:]
	}
	reports.held = reports.held[:0]
}
