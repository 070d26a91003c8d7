package egress

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
)

// The sandbox host and its broker speak over one socket of packets: the host
// opens a grant, with the listening socket of the sandbox attached, which the
// broker confirms, and closes it; the broker then tells what was attempted. Of
// a grant that goes on for long it tells when it is asked. Nothing else is said.

// MaxConnections bounds what one grant tells at a time. What is beyond it is
// counted together, as Others.
const MaxConnections = 64

// Others stands for the targets that are not told one by one.
const Others = "others"

// A packet holds a grant, with the authority that goes with it, or all that is told
// of one: its rules, and MaxConnections targets.
const (
	maxPacket = 128 << 10
	maxGrant  = 64 << 10
)

type order struct {
	Open  *Grant `json:"open,omitempty"`
	Close string `json:"close,omitempty"` // id of a grant
	Tell  string `json:"tell,omitempty"`  // id of a grant
}

type reply struct {
	Opened  string   `json:"opened,omitempty"` // id of a grant that is served now
	Told    *Account `json:"told,omitempty"`   // of a grant that goes on
	Account *Account `json:"account,omitempty"`
}

// An Account is what a broker tells of a grant at its end, or meanwhile.
type Account struct {
	ID          string                  `json:"id"`
	Connections []sallyport.Connection  `json:"connections"` // that it has not told yet
	Applied     sallyport.AppliedEgress `json:"applied"`     // as the broker read it, and served it
}

// A tally counts what each open grant attempts.
type tally struct {
	mu   sync.Mutex
	open map[string]map[sallyport.Connection]*sallyport.Connection // by grant, then by what is alike
}

func (t *tally) note(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.open[e.Grant]
	key := sallyport.Connection{Target: (Target{Host: e.Host, Port: e.Port}).String(), Allowed: e.Allowed, Reason: string(e.Reason)}
	if all == nil {
		return
	}
	if all[key] == nil && len(all) >= MaxConnections {
		key.Target = Others
	}
	if all[key] == nil {
		a := key
		all[key] = &a
	}
	if e.Open || !e.Allowed {
		all[key].Count++
	}
	all[key].Bytes += e.Bytes
}

func (t *tally) begin(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[id] = map[sallyport.Connection]*sallyport.Connection{}
}

// take tells what was not told yet.
func (t *tally) take(id string) []sallyport.Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]sallyport.Connection, 0, len(t.open[id]))
	for _, a := range t.open[id] {
		out = append(out, *a)
	}
	clear(t.open[id])
	slices.SortFunc(out, func(a, b sallyport.Connection) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

func (t *tally) end(id string) []sallyport.Connection {
	out := t.take(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, id)
	return out
}

// Obey serves the grants that the sandbox host sends over c, until c ends. It
// sets b.Report.
func (b *Broker) Obey(ctx context.Context, c *net.UnixConn) error {
	t := &tally{open: map[string]map[sallyport.Connection]*sallyport.Connection{}}
	b.Report = t.note
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	ends := map[string]context.CancelFunc{}
	for {
		o, l, err := receive(c)
		if err != nil {
			return err
		}
		switch {
		case o.Open != nil && l != nil:
			grant, end := context.WithCancel(ctx)
			ends[o.Open.ID] = end
			t.begin(o.Open.ID)
			tell(c, reply{Opened: o.Open.ID})
			all.Go(func() {
				_ = b.Serve(grant, l, *o.Open)
				<-grant.Done() // it is open until the host closes it, even if its time is over
				tell(c, reply{Account: &Account{o.Open.ID, t.end(o.Open.ID), o.Open.applied()}})
			})
		case o.Tell != "":
			tell(c, reply{Told: &Account{ID: o.Tell, Connections: t.take(o.Tell)}})
		case o.Close != "":
			if end := ends[o.Close]; end != nil {
				end()
				delete(ends, o.Close)
			}
		}
	}
}

// tell sends a reply. Where the host is gone, nobody misses it.
func tell(c *net.UnixConn, r reply) {
	if data, err := json.Marshal(r); err == nil {
		_, _ = c.Write(data)
	}
}

// receive reads one order, and the socket that came with it.
func receive(c *net.UnixConn) (o order, l net.Listener, err error) {
	buf, oob := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(4))
	n, k, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return o, nil, err
	}
	if n == 0 {
		return o, nil, net.ErrClosed
	}
	l, err = attached(oob[:k])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("an order was cut short")
	}
	if err == nil {
		err = json.Unmarshal(buf[:n], &o)
	}
	if err == nil && (o.Open != nil) != (l != nil) {
		err = errors.New("a grant comes with a socket, and nothing else does")
	}
	if err != nil && l != nil {
		_ = l.Close()
	}
	return o, l, err
}

func attached(oob []byte) (net.Listener, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(err, errors.New("one socket comes with a grant"))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(err, errors.New("one socket comes with a grant"))
	}
	f := os.NewFile(uintptr(fds[0]), "sandbox")
	defer f.Close()
	return net.FileListener(f)
}

// A Remote is the sandbox host's side: a broker in another process. It is safe
// for concurrent use. Once the broker is gone, nothing is granted any more.
type Remote struct {
	conn *net.UnixConn

	mu      sync.Mutex
	waiting map[string]opened
	gone    error
}

// An opened grant waits for what the broker says of it. All are closed where
// the broker is gone.
type opened struct {
	served chan struct{}
	told   chan Account
	done   chan Account
}

// ErrGone means that the broker's process has ended.
var ErrGone = errors.New("the egress broker is gone")

// NewRemote takes over a connection to Obey.
func NewRemote(c *net.UnixConn) *Remote {
	r := &Remote{conn: c, waiting: map[string]opened{}}
	go r.listen()
	return r
}

func (r *Remote) listen() {
	buf := make([]byte, maxPacket)
	for {
		n, err := r.conn.Read(buf)
		if err != nil || n == 0 {
			break
		}
		var m reply
		if json.Unmarshal(buf[:n], &m) != nil {
			break
		}
		r.take(m)
	}
	_ = r.conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = ErrGone
	for id, w := range r.waiting {
		close(w.served)
		close(w.told)
		close(w.done)
		delete(r.waiting, id)
	}
}

func (r *Remote) take(m reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w, ok := r.waiting[m.Opened]; ok {
		select {
		case w.served <- struct{}{}:
		default: // said before
		}
	}
	if m.Told != nil {
		if w, ok := r.waiting[m.Told.ID]; ok {
			select {
			case w.told <- *m.Told:
			default: // nobody asked
			}
		}
	}
	if m.Account == nil {
		return
	}
	if w, ok := r.waiting[m.Account.ID]; ok {
		w.done <- *m.Account
		delete(r.waiting, m.Account.ID)
	}
}

// Open has the broker serve a listening socket under a grant; the caller may
// close its own then. It returns when the broker has said that it does. end ends
// the service and tells what was attempted; what a broker that is gone saw is
// lost, and ErrGone says so.
func (r *Remote) Open(g Grant, socket *os.File) (end func() (Account, error), err error) {
	data, err := json.Marshal(order{Open: &g})
	if err != nil {
		return nil, err
	}
	if len(data) > maxPacket {
		return nil, fmt.Errorf("grant %s is too large: %d bytes; at most %d fit", g.ID, len(data), maxPacket)
	}
	o := opened{make(chan struct{}, 1), make(chan Account, 1), make(chan Account, 1)}
	if err := r.send(g.ID, o, data, socket); err != nil {
		return nil, err
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case _, ok := <-o.served:
		if !ok {
			return nil, ErrGone
		}
	case <-late.C:
		_ = r.conn.Close() // a broker that does not answer grants nothing more
		return nil, ErrGone
	}
	return func() (Account, error) { return r.end(g.ID, o.done) }, nil
}

func (r *Remote) send(id string, o opened, data []byte, socket *os.File) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone != nil {
		return r.gone
	}
	if _, ok := r.waiting[id]; ok {
		return fmt.Errorf("grant %s is open already", id)
	}
	if _, _, err := r.conn.WriteMsgUnix(data, unix.UnixRights(int(socket.Fd())), nil); err != nil {
		return errors.Join(ErrGone, err)
	}
	r.waiting[id] = o
	return nil
}

// patience is how long a broker may take to begin or to end a grant.
const patience = 30 * time.Second

func (r *Remote) end(id string, done <-chan Account) (Account, error) {
	return r.ask(order{Close: id}, done)
}

// Tell tells what was attempted under a grant since it was told last. One
// goroutine asks of one grant at a time.
func (r *Remote) Tell(id string) (Account, error) {
	r.mu.Lock()
	o, ok := r.waiting[id]
	err := r.gone
	r.mu.Unlock()
	if err != nil || !ok {
		return Account{ID: id}, err
	}
	return r.ask(order{Tell: id}, o.told)
}

func (r *Remote) ask(o order, answer <-chan Account) (Account, error) {
	data, err := json.Marshal(o)
	if err == nil {
		_, err = r.conn.Write(data)
	}
	if err != nil {
		return Account{}, errors.Join(ErrGone, err)
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case a, ok := <-answer:
		if !ok {
			return Account{}, ErrGone
		}
		return a, nil
	case <-late.C:
		_ = r.conn.Close() // a broker that does not answer grants nothing more
		return Account{}, ErrGone
	}
}

// Close ends the broker.
func (r *Remote) Close() error { return r.conn.Close() }
