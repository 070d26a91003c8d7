package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/capture"
	"sallyport.dev/sallyport/tier/child"
	"sallyport.dev/sallyport/tier/payload"
)

// A service is a program that lives long: a server. Its sandbox is built like
// any other, and differs in what it is shown: folders of the host and an image
// of its own, which process 1 puts in their places under a root that is
// read-only again when the program starts. Its streams are the caller's.

// PackageDir is where a service finds its package.
const PackageDir = "/usr/lib/sallyport/package"

const (
	fdPackage   = 8
	serviceTime = 10 * 365 * 24 * time.Hour // services have no time limit; grants and checks want one
	serviceWay  = "/run/sallyport-way"
	servicePoll = time.Second // between looks at the out-of-memory counter
	reachPolls  = 5           // polls between tellings of what was reached
)

// A Service is one program that runs until it ends or is stopped.
type Service struct {
	tier.Request          // without files and stdin; the limits of time and output do not apply
	UID          int      // of the program, inside and for what it writes to Folders
	Folders      []Folder // of the host
	Package      *os.File // an EROFS image, shown at PackageDir; nil for none

	// Told, if set, hears now and then what was reached, or tried, and which limits
	// were hit since the last time; ServiceExit has the rest. It must not block.
	Told func(reached []sallyport.Connection, limits []string)

	Stdin, Stdout, Stderr *os.File // the program's own; Serve leaves them open
}

// A Folder is a folder of the host that a service is shown.
type Folder struct {
	Inside   string // where, absolute and clean
	Path     string // on the host, absolute, without symbolic links
	Writable bool
}

// An Instance is a service that runs.
type Instance struct {
	s    *sandbox
	told func([]sallyport.Connection, []string)
	mu   sync.Mutex
	hits []byte // from the limits sink, not told yet

	stop *os.File // asks process 1 to end the program
	done chan struct{}
	exit ServiceExit
}

// A ServiceExit is how a service ended.
type ServiceExit struct {
	Code        int
	Signal      string // "" if it exited by itself
	OutOfMemory bool
	Connections []sallyport.Connection // made or tried, that Told has not heard of
	LimitsHit   []string               // the same
	Err         error                  // the sandbox failed, or something of it is left
}

// Serve starts a service and returns when its program runs. It is not bounded
// by Config.MaxRuns. ctx bounds the start only.
func (h *Host) Serve(ctx context.Context, v Service) (*Instance, error) {
	v.Limits.Timeout, v.Limits.Output = serviceTime, 1
	if err := v.Check(); err != nil {
		return nil, err
	}
	if v.UID <= 0 {
		return nil, tier.Invalid("give the service a uid of its own", "a service does not run as uid %d", v.UID)
	}
	image, _, err := h.images.Find(h.cfg.Images, v.Image)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	platform := h.platform
	h.mu.Unlock()
	if platform == "" {
		platform = "systrap"
	}
	s := h.newSandbox(context.Background(), v.Request)
	s.argv0 = v.Argv[0]
	in := &Instance{s: s, told: v.Told, done: make(chan struct{})}
	way := func(s *sandbox, r tier.Request) error { return h.listenWay(s, r.Way, serviceTime) }
	if err := h.bring(s, v.Request, func() error { return h.startService(s, platform, image, v) }, way); err != nil {
		return nil, err
	}
	s.hits.Tell(&in.mu, func(b []byte) { in.hits = append(in.hits, b...) })
	in.stop = s.orders
	s.orders = nil
	go func() { _, _ = in.stop.Write(v.encode(s)) }() // a sandbox that is gone says so in its report
	started := make(chan struct{})
	go h.attend(in, started)
	select {
	case <-started:
		return in, nil
	case <-in.done:
		return nil, s.whyNot(in.exit)
	case <-ctx.Done():
		in.Kill()
		<-in.done
		return nil, ctx.Err()
	}
}

// startService starts sallyport-runsc on the streams of the service.
func (h *Host) startService(s *sandbox, platform string, image *os.File, v Service) (err error) {
	var p child.Pipes
	defer func() { p.Finish(err != nil) }()
	orders, ordersIn := p.ToChild(false)
	report, reportChild := p.FromChild()
	hits, hitsChild := p.FromChild()
	if p.Err != nil {
		return p.Err
	}
	bundle, err := s.writeBundle(v)
	if err != nil {
		return err
	}
	s.cmd = h.runtime(s, platform, "run", "--bundle="+bundle, fmt.Sprintf("--exec-fd=%d", fdInit),
		fmt.Sprintf("--pass-fd=%d:3", fdPayload), fmt.Sprintf("--pass-fd=%d:4", fdReport), s.id)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = v.Stdin, v.Stdout, v.Stderr
	s.cmd.ExtraFiles = []*os.File{h.init, orders, reportChild, image, hitsChild}
	if v.Package != nil {
		s.cmd.ExtraFiles = append(s.cmd.ExtraFiles, v.Package)
	}
	if err := h.spawn.Start(s.cmd); err != nil {
		return err
	}
	s.report = payload.Report(report, math.MaxInt)
	s.hits = capture.Start(hits, 4<<10)
	s.orders = ordersIn
	return nil
}

// attend follows a service to its end and removes all that is left of it.
func (h *Host) attend(in *Instance, started chan<- struct{}) {
	s := in.s
	boot := time.NewTimer(bootPatience)
	defer boot.Stop()
	tick := time.NewTicker(servicePoll)
	defer tick.Stop()
	polls := 0
	for over := false; !over; {
		select {
		case rec, open := <-s.report:
			over = !open || s.note(rec)
			if rec.Kind == payload.Started && boot.Stop() { // once, whatever it says
				h.up(s)
				_ = unpin(s.dir) // a host that is killed leaves no mount; remove tries again
				close(started)
			}
		case <-boot.C:
			s.end, over = errBoot, true
		case <-s.ctx.Done():
			s.end, over = context.Cause(s.ctx), true
		case <-tick.C:
			if polls++; polls%reachPolls == 0 {
				h.tell(in)
			}
			over = s.group.OOMKills() > 0
		}
	}
	err := s.kill()
	in.stop.Close()
	in.exit = ServiceExit{OutOfMemory: s.group.OOMKills() > 0, Err: err, LimitsHit: in.limits(), Connections: append(s.closeWay().Connections, tier.Denials(s.denied)...)}
	if in.exit.Code, in.exit.Signal = 128+int(unix.SIGKILL), "SIGKILL"; s.status != nil {
		in.exit.Code, in.exit.Signal = tier.ExitOf(*s.status)
	}
	h.bury(s)
	h.forget(s)
	close(in.done)
}

// tell tells what a service reached lately.
func (h *Host) tell(in *Instance) {
	lately := tier.Denials(in.s.denied)
	in.s.denied = nil
	if t, ok := h.cfg.Broker.(tier.Teller); ok && in.s.endWay != nil {
		lately = append(lately, t.Tell(in.s.id)...)
	}
	if hit := in.limits(); in.told != nil && len(lately)+len(hit) > 0 {
		in.told(lately, hit)
	}
}

// limits names the limits that were hit, once.
func (i *Instance) limits() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	hit := namesOf(i.hits)
	i.hits = nil
	return hit
}

// whyNot says why a service did not start.
func (s *sandbox) whyNot(e ServiceExit) error {
	switch {
	case s.failed != nil && s.failed.Of(s.argv0) && s.failed.Errno == unix.ENOENT:
		return tier.Unavailable("use a program of the image (node, python3, …), a package (npx -y NAME@VERSION), or `isolation: uid` for a program of this host",
			"the program %.80q is not in the sandbox image", s.argv0)
	case s.failed != nil:
		return tier.Unavailable("see the log of sallyport-sandboxd", "the service could not be started: %s", s.failed.What)
	case e.OutOfMemory:
		return tier.Unavailable("raise its memory limit", "the service was out of memory before it started")
	case s.end == nil:
		return tier.Unavailable("see the log of sallyport-sandboxd", "the sandbox of the service ended before its program started")
	}
	err := tier.Unavailable("see the log of sallyport-sandboxd", "the service could not be started: %v", s.end)
	err.Err = errors.Join(sallyport.ErrNotExecuted, s.end)
	return err
}

// Done is closed when the service has ended and nothing of it is left.
func (i *Instance) Done() <-chan struct{} { return i.done }

// Exit returns, once Done is closed, how the service ended.
func (i *Instance) Exit() ServiceExit {
	<-i.done
	return i.exit
}

// ID is the sandbox's.
func (i *Instance) ID() string { return i.s.id }

// Terminate asks the program to end (SIGTERM).
func (i *Instance) Terminate() { _, _ = i.stop.Write([]byte{1}) }

// Kill ends the service at once; Done tells when it is gone.
func (i *Instance) Kill() { i.s.cancel(tier.ErrKilled) }

// writeBundle writes the configuration of a service: that of every sandbox, and
// what it is shown. The root is an overlay in memory, so that there is a place
// for each folder; process 1 makes it read-only.
func (s *sandbox) writeBundle(v Service) (bundle string, err error) {
	bundle = filepath.Join(s.dir, "bundle")
	root := filepath.Join(bundle, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", err
	}
	b, err := bundleSpec(root, "")
	if err != nil {
		return "", err
	}
	var spec specs.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		return "", err
	}
	spec.Root.Readonly = false
	caps := append(slices.Clone(spec.Process.Capabilities.Bounding), "CAP_KILL") // to ask the program to end
	spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
	spec.Annotations["dev.gvisor.spec.rootfs.overlay"] = "memory"
	spec.Mounts = append(spec.Mounts, s.mounts(v)...)
	if b, err = json.Marshal(spec); err != nil {
		return "", err
	}
	return bundle, os.WriteFile(filepath.Join(bundle, "config.json"), b, 0o600)
}

func (s *sandbox) mounts(v Service) []specs.Mount {
	all := []specs.Mount{{Destination: payload.Mounts, Type: "tmpfs", Source: "tmpfs", Options: []string{"size=65536", "mode=0700"}}}
	bind := func(name, from string, writable bool) {
		options := []string{"bind", "nosuid", "nodev"}
		if !writable {
			options = append(options, "ro")
		}
		all = append(all, specs.Mount{Destination: payload.Mounts + "/" + name, Type: "bind", Source: from, Options: options})
	}
	for i, f := range v.Folders {
		bind(strconv.Itoa(i), f.Path, f.Writable)
	}
	if len(v.Way.Reach) > 0 {
		bind(wayName, s.wayDir(), false)
	}
	if v.Package != nil {
		all = append(all, specs.Mount{
			Destination: PackageDir, Type: "erofs", Source: fmt.Sprintf("/proc/self/fd/%d", fdPackage), Options: []string{"ro", "nosuid", "nodev"},
		})
	}
	return all
}

// encode writes a service as sallyport-init reads it.
func (v Service) encode(s *sandbox) []byte {
	b := tier.AppendBounds(nil, v.Limits)
	b = payload.Append(b, payload.User, payload.AppendUint32(nil, uint32(v.UID)))
	b = payload.Append(b, payload.Dir, []byte(tier.WorkDir))
	for i, f := range v.Folders {
		b = payload.Append(b, payload.Place, []byte(strconv.Itoa(i)+"\x00"+f.Inside))
	}
	if len(v.Way.Reach) > 0 {
		b = payload.Append(b, payload.Place, []byte(wayName+"\x00"+serviceWay))
	}
	b = s.appendProxy(b, serviceWay+"/"+wayName)
	b = payload.Append(b, payload.Stay, nil)
	b = v.AppendProgram(s.appendTrust(b), s.environment(v.Env, true))
	return payload.Append(b, payload.Go, nil)
}
