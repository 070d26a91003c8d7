package isolate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"time"
)

// An isolate takes longer to make than most calls do in it. So who ran the same module
// twice, one call after the other, has one made ahead: the process is given what the
// isolate is made of, and the rest of the request with the call. It is an isolate of its
// own, for that one call. Of its module nothing was run.
type ahead struct {
	source []byte // see encode
	end    string // the word of the host
	conn   net.Conn
}

// prepare has an isolate made ahead for the next call, if the one that ended was made of the
// same source as the one before it. If that one printed, it is made ready to print.
func (p *process) prepare(source []byte, printed bool) error {
	again := bytes.Equal(p.last, source)
	if p.last = source; !again {
		return nil
	}
	conn, err := net.Dial("unix", p.socket())
	if err != nil {
		return err
	}
	p.ahead = &ahead{source, random(), conn}
	_ = conn.SetDeadline(time.Now().Add(p.h.again)) // a closed one says so when it is used
	head := fmt.Appendf(nil, "%s / HTTP/1.1\r\nHost: host\r\nConnection: close\r\nend: %s\r\nprints: %t\r\nTransfer-Encoding: chunked\r\n\r\n", http.MethodPut, p.ahead.end, printed)
	b := append(net.Buffers{head}, chunk(source)...)
	if _, err := b.WriteTo(conn); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// waiting is the isolate that was made ahead for a call, nil if there is none. One
// of another source is dropped.
func (p *process) waiting(source []byte) *ahead {
	a := p.ahead
	if a != nil && !bytes.Equal(a.source, source) {
		p.drop()
		return nil
	}
	p.ahead = nil
	return a
}

// drop lets go of an isolate that was made ahead.
func (p *process) drop() {
	if p.ahead != nil {
		p.ahead.conn.Close()
		p.ahead = nil
	}
}

// rest is what is left to send.
func (a *ahead) rest(input []byte) net.Buffers { return append(chunk(input), []byte("0\r\n\r\n")) }

// chunk is a part of a request, with its size before it, as HTTP frames what comes in parts.
func chunk(part []byte) net.Buffers {
	size := uint32(len(part))
	head := binary.LittleEndian.AppendUint32(fmt.Appendf(nil, "%x\r\n", size+4), size)
	return net.Buffers{head, part, []byte("\r\n")}
}
