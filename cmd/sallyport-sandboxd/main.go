// Command sallyport-sandboxd is the sandbox host: it has the privileges that
// sandboxes need, and no policy. A gateway starts it at the other end of a
// socketpair (descriptor 3) and it lives exactly as long as that connection; or
// it listens on a unix socket for one uid.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/sandboxd"
	"sallyport.dev/sallyport/sandboxd/volume"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/rundir"
	"sallyport.dev/sallyport/tier/session"
	"sallyport.dev/sallyport/tier/stay"
)

const runDir = "/run/sallyport-sandboxd"

type options struct {
	run, state, book, cache, programs    string
	socket                               string
	peer, maxRuns, queue, warm, firstUID int
	private, own                         string

	sessions, sessionsOf int
	rest, idle, life     time.Duration
	grace                time.Duration
	closed               []string
	volumes              bool
	tiers                []string // that may be opened
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == brokerWord {
		brokerMain(os.Args[2:])
		return
	}
	if len(os.Args) > 3 && os.Args[1] == runImageWord {
		if err := runImage(os.Args[2], os.Args[3:]); err != nil {
			fail(err)
		}
		return
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)).With("from", "sandboxd")) // beside the gateway's lines
	o := parse(os.Args[1:])
	if err := serve(o); err != nil {
		fail(err)
	}
}

func fail(err error) {
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		err = fmt.Errorf("%s (hint: %s)", e.Message, e.Hint)
	}
	fmt.Fprintln(os.Stderr, "sallyport-sandboxd:", err)
	os.Exit(5)
}

func parse(args []string) options {
	var o options
	self, _ := os.Executable()
	f := flag.NewFlagSet("sallyport-sandboxd", flag.ExitOnError)
	f.StringVar(&o.run, "run", runDir, "runtime folder; emptied of what an earlier sandbox host left")
	f.StringVar(&o.state, "state", "/var/lib/sallyport-sandboxd", "folder of the servers' homes")
	f.StringVar(&o.book, "uids", "/var/lib/sallyport-sandboxd/uids.json", "file that says which server has which uid, one for all sandbox hosts of a machine")
	f.StringVar(&o.cache, "cache", image.CacheDir(os.Getenv, os.Geteuid()), "folder of images, guest kernels and runtimes")
	f.StringVar(&o.programs, "programs", filepath.Dir(self), "folder of the programs that sandboxes are run with")
	f.StringVar(&o.socket, "socket", "", "listen on this unix socket instead of descriptor 3")
	f.IntVar(&o.peer, "peer", 0, "with -socket: the uid that may connect, beside root")
	f.IntVar(&o.maxRuns, "max-runs", 16, "sandboxes at once")
	f.IntVar(&o.queue, "queue", 64, "runs that may wait for a sandbox; more are refused")
	f.IntVar(&o.warm, "warm", 4, "started sandboxes that may wait for the next call of their kind; each holds about 30 MB")
	f.IntVar(&o.firstUID, "first-uid", 64600, "first of the 800 uids of third-party servers")
	f.StringVar(&o.private, "egress-private", "", "private CIDR ranges that sandboxes may reach where a tool lists a host in them, with commas between")
	f.StringVar(&o.own, "egress-own", "", "HOST:PORT addresses of gateways, which sandboxes never reach, with commas between")
	f.IntVar(&o.sessions, "sessions", 16, "sessions at once; 0 for none")
	f.IntVar(&o.sessionsOf, "sessions-of", 4, "sessions of one principal at once")
	f.DurationVar(&o.rest, "session-rest", time.Minute, "time without a call after which a session's memory goes to an encrypted file; 0 for never")
	f.DurationVar(&o.idle, "session-idle", 10*time.Minute, "time without a call after which a session ends")
	f.DurationVar(&o.life, "session-life", 8*time.Hour, "time after which a session ends in any case")
	f.DurationVar(&o.grace, "gateway-grace", sandboxd.DefaultGrace, "with -socket: time after which the sessions of a gateway that is gone end")
	f.BoolVar(&o.volumes, "volumes", true, "keep servers' own folders in file systems of their size (needs loop devices and mkfs.ext4); else they are looked at once a second")
	f.Func("tiers", "tiers that may be opened, with commas between (default all)", o.setTiers)
	f.Func("closed", "folder that no server is shown as a root, such as a gateway's data folder; may repeat", func(s string) error {
		if !filepath.IsAbs(s) {
			return errors.New("want an absolute path")
		}
		o.closed = append(o.closed, s)
		return nil
	})
	_ = f.Parse(args) // exits on an error
	if f.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "sallyport-sandboxd: unexpected argument %q\n", f.Arg(0))
		os.Exit(2)
	}
	return o
}

func serve(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	// Listen before the reaper's work: the gateway may talk at once.
	listener, err := listen(o)
	if err != nil {
		return err
	}
	way := &brokerProcess{o: o}
	host, err := gvisor.OpenFree(o.run, gvisor.Config{Programs: o.programs, Images: images{image.NewStore(o.cache)}, MaxRuns: o.maxRuns, Queue: o.queue, Warm: o.warm, Broker: way})
	if err != nil {
		return err
	}
	way.nursery = host
	defer way.close()
	defer host.Close()
	var volumes *volume.Store
	if o.volumes {
		volumes = &volume.Store{}
	}
	tiers := newTiers(o, host, way)
	defer tiers.Close()
	sessions, err := openSessions(o, tiers)
	if err != nil {
		return err
	}
	defer sessions.Close()
	g := sandboxd.NewServer(sandboxd.Config{
		Tiers: tiers.all, Services: host, Nursery: host, Sessions: sessions, Grace: o.grace, Volumes: volumes,
		Servers: sandboxd.ServerConfig{
			State: o.state, Book: o.book, FirstUID: o.firstUID, Init: filepath.Join(o.programs, gvisor.InitProgram),
			Closed: append(o.closed, o.run, o.cache), Environ: os.Environ(),
		},
	}).Register()
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	select {
	case <-ctx.Done():
		slog.Info("stopping", "reason", "signal")
	case err = <-done: // the gateway is gone
		slog.Info("stopping", "reason", "the gateway's connection ended")
	}
	sessions.Close()
	host.Close() // ends every call, so that stopping has nothing to wait for
	if e := tiers.Close(); e != nil {
		slog.Error("a tier did not end well", "err", e)
	}
	g.Stop()
	if e := volumes.Close(); e != nil {
		slog.Error("a server's own folder stays mounted", "err", e)
	}
	if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// check says why nothing can be served, before anything is opened.
func (o options) check() error {
	if err := rundir.Privileged(); err != nil {
		return err
	}
	if _, err := parseBroker(o.private, o.own); err != nil { // the broker itself starts later
		return &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Execute, Message: err.Error(), Hint: "correct -egress-private or -egress-own: RANGE/BITS and HOST:PORT, with commas between",
		}
	}
	return nil
}

// openSessions makes a place for sessions, nil for none.
func openSessions(o options, t *tiers) (*session.Sessions, error) {
	if o.sessions <= 0 {
		return nil, nil
	}
	if err := os.MkdirAll(o.state, 0o711); err != nil {
		return nil, err
	}
	hosts := map[string]stay.Host{}
	for name, t := range t.all {
		if h, ok := t.(stay.Host); ok {
			hosts[name] = h
		}
	}
	return session.Open(session.Config{
		Hosts: hosts, Max: o.sessions, PerOwner: o.sessionsOf, Idle: o.idle, Life: o.life, Rest: o.rest, Dir: o.state,
	}), nil
}

func listen(o options) (net.Listener, error) {
	if o.socket != "" {
		return sandboxd.ListenUnix(o.socket, o.peer)
	}
	l, err := sandboxd.Inherited(3)
	if err != nil {
		return nil, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Execute, Message: "no gateway at descriptor 3: " + err.Error(),
			Hint: "`sallyport serve` starts this program by itself; to run it apart, give -socket and -peer",
		}
	}
	return l, nil
}

// images finds images in the cache, checked, and keeps them from being removed.
type images struct{ store *image.Store }

// Find implements tier.Images.
func (i images) Find(ref string) (tier.Image, error) {
	img, err := i.store.Use(ref)
	return tier.Image{Digest: img.Digest, Path: img.Path}, err
}
