package microvm

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"sallyport.dev/sallyport/microvm/mux"
	"sallyport.dev/sallyport/tier"
)

// The way out of a guest is its channel: the sandbox's proxy connects to process 1
// of the guest, which opens a stream for each connection, and here each is joined
// to the socket that the broker serves for this one sandbox. Nothing else listens
// there, and only root can open it.
type way struct {
	ca  tier.Authority
	end func() tier.Passed
}

// openWay has the broker serve what a run may reach. Where that is nothing it
// returns nil, and the guest has no way out at all.
func (h *Host) openWay(m *machine, id string, w tier.Way, within time.Duration) (*way, error) {
	if len(w.Reach) == 0 {
		return nil, nil
	}
	at := tier.Socket{Path: filepath.Join(m.dir, "way"), Mode: 0o600}
	ca, end, err := w.Serve(h.cfg.Broker, at, id, tier.Authority{}, within)
	if err != nil {
		return nil, err
	}
	go carryAll(m.mux, at.Path)
	return &way{ca, end}, nil
}

// carryAll joins each stream that the guest opens to the broker, until the guest is gone.
func carryAll(s *mux.Session, path string) {
	for {
		t, err := s.Accept()
		if err != nil {
			return
		}
		go carry(t, path)
	}
}

func carry(t *mux.Stream, path string) {
	defer t.Close()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		_, _ = io.WriteString(t, gone)
		_ = t.CloseWrite()
		return
	}
	defer c.Close()
	var up sync.WaitGroup
	up.Go(func() {
		_, err := io.Copy(c, struct{ io.Reader }{t})
		if err != nil && !errors.Is(err, io.EOF) {
			c.Close() // the guest is gone
			return
		}
		_ = c.CloseWrite()
		t.Wait()
		c.Close() // though the broker may have more: nobody takes it
	})
	_, _ = io.Copy(struct{ io.Writer }{t}, c)
	_ = t.CloseWrite()
	up.Wait()
}

// gone has the shape of the broker's own answers (egress.Denied).
const gone = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nSallyport-Egress: denied; reason=broker_gone\r\nConnection: close\r\n\r\n" +
	`{"error":"egress_denied","reason":"broker_gone","message":"the way out of this sandbox is closed","hint":"run it again; if it persists, an operator sees why with sallyport doctor"}` + "\n"

// trusted is the certificate that the sandbox is to trust, nil if there is none.
func (w *way) trusted() []byte {
	if w == nil {
		return nil
	}
	return w.ca.Cert
}

// close ends the broker's service, once.
func (w *way) close() tier.Passed {
	if w == nil || w.end == nil {
		return tier.Passed{}
	}
	end := w.end
	w.end = nil
	return end()
}
