package escape_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
)

// An assault is a program that wants more than its share, and what becomes of
// it: a limit by name, or nothing at all.
type assault struct {
	name    string
	script  string // of bash, or python3 if it begins with import
	memory  int64  // 0: 128 MiB
	timeout time.Duration
	killed  []gvisor.KilledBy // any of these; nil: none
	hit     string            // a limit that it is told of
	says    string            // that is in its output
}

const spin = `
import signal, time
for s in range(1, 32):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
print("deaf", flush=True)
while True: pass
`

func diskAssaults() []assault {
	return []assault{
		{name: "one big file", script: `for d in /tmp /dev/shm /run /home/agent; do head -c 200M /dev/zero >$d/big; done; df --output=used -B1M /tmp | tail -1`, hit: gvisor.LimitDisk},
		{name: "deleted but open", script: "import os\nf = []\ntry:\n  for i in range(200):\n    g = open('/tmp/x', 'wb'); os.unlink('/tmp/x'); f.append(g); g.write(b'x' * (1 << 20)); g.flush()\nexcept OSError as e: print('stopped', e.errno)\n", hit: gvisor.LimitDisk, says: "stopped 28"},
		{name: "sparse, then real", script: "import os\nf = open('/tmp/s', 'wb')\nos.truncate('/tmp/s', 1 << 40)\ntry:\n  for i in range(300): os.pwrite(f.fileno(), b'x' * (1 << 20), i << 22)\nexcept OSError as e: print('stopped', e.errno)\n", hit: gvisor.LimitDisk, says: "stopped 28"},
		{name: "many small files", script: "import os\nn = 0\ntry:\n  for n in range(5_000_000): os.close(os.open('/tmp/' + 'n' * 240 + str(n), os.O_CREAT))\nexcept OSError as e: print('stopped', e.errno, n < 100_000)\n", hit: gvisor.LimitDisk, says: "stopped 28 True"},
		{name: "a deep tree", script: "import os\nn = 0\ntry:\n  for n in range(10_000):\n    os.mkdir('d' * 255); os.chdir('d' * 255)\nexcept OSError as e: print('stopped', e.errno)\nprint('deep', n)\n", says: "deep"},
		{name: "a flood of output", script: `timeout 1 yes "$(head -c 8000 /dev/zero | tr '\0' x)"; timeout 1 yes >&2; exit 0`, hit: gvisor.LimitOutput},
	}
}

func timeAssaults() []assault {
	timeout := []gvisor.KilledBy{gvisor.KilledByTimeout}
	return []assault{
		{name: "deaf to signals", script: spin, timeout: time.Second, killed: timeout, says: "deaf"},
		{name: "stops itself", script: `kill -STOP $$`, timeout: time.Second, killed: timeout},
		{name: "stops all of its own", script: `sleep 60 & kill -STOP -1; kill -STOP 0; sleep 60`, timeout: time.Second, killed: timeout},
		{name: "waits for a vfork", script: "import ctypes, os, time\nlibc = ctypes.CDLL(None)\nif os.posix_spawn('/bin/sh', ['sh', '-c', 'kill -STOP $$'], os.environ): os.wait()\n", timeout: time.Second, killed: timeout},
		{name: "an endless expression", script: "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')\n", timeout: time.Second, killed: timeout},
		{name: "forks without end", script: "import os, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\nexcept OSError as e: print('stopped', e.errno, n < 200, flush=True)\nos.kill(0, 9)\n", memory: 1 << 30, hit: gvisor.LimitProcesses, says: "stopped 11 True"},
	}
}

func memoryAssaults() []assault {
	memory := []gvisor.KilledBy{gvisor.KilledByMemory}
	return []assault{
		{name: "pipes", script: "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\nn = 0\ntry:\n  for n in range(10_000):\n    r, w = os.pipe(); os.set_blocking(w, False); os.write(w, b'x' * 65536)\nexcept OSError as e: print('stopped', e.errno)\n", killed: []gvisor.KilledBy{"", gvisor.KilledByMemory}},
		{name: "arguments", script: "import os\ntry: os.execv('/bin/true', ['true'] + ['x' * 131000] * 10_000)\nexcept (OSError, MemoryError) as e: print('stopped', e)\n", killed: []gvisor.KilledBy{"", gvisor.KilledByMemory}, memory: 256 << 20},
		{name: "memfd", script: "import os\nf = os.memfd_create('x')\nfor i in range(400): os.pwrite(f, b'x' * (1 << 20), i << 20)\n", killed: memory},
		{name: "mlock", script: "import ctypes, mmap\nm = mmap.mmap(-1, 400 << 20)\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.mlockall(3))\nfor i in range(0, 400 << 20, 4096): m[i] = 1\n", killed: memory},
		{name: "huge pages", script: "import mmap\ntry:\n  m = mmap.mmap(-1, 400 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)\nexcept OSError: m = mmap.mmap(-1, 400 << 20)\nm.madvise(14) if hasattr(mmap, 'MADV_HUGEPAGE') else 0\nfor i in range(0, 400 << 20, 4096): m[i] = 1\n", killed: memory},
		{name: "pushed out to swap", script: "import ctypes, mmap\nlibc = ctypes.CDLL(None)\nopen('/tmp/s', 'wb').write(b'x' * (1 << 20))\nprint(libc.swapon(b'/tmp/s', 0), flush=True)\nheld = []\nfor i in range(100):\n  m = mmap.mmap(-1, 4 << 20); held.append(m); m.write(b'x' * (4 << 20))\n  libc.madvise(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m))), 4 << 20, 21)\n", killed: memory, says: "-1"},
		{name: "a decompression bomb", script: "import zlib\nc = zlib.compressobj(9)\nbomb = b''.join(c.compress(bytes(1 << 20)) for _ in range(200)) + c.flush()\nprint(len(bomb) < 1 << 20, flush=True)\nzlib.decompress(bomb)\n", killed: memory, says: "True"},
		{name: "a bomb onto the disk", script: `head -c 100M /dev/zero | gzip -1 >/tmp/z; gzip -dc /tmp/z >/tmp/big; echo $((1$(stat -c %s /tmp/z) > 11000000))`, hit: gvisor.LimitDisk},
		{name: "files in memory", script: `head -c 300M /dev/zero >/dev/shm/x; tail -c 1 /dev/shm/x; sleep 1`, hit: gvisor.LimitDisk},
		{name: "sockets", script: "import socket\nall = []\nn = 0\ntry:\n  for n in range(2000):\n    a, b = socket.socketpair(); a.setblocking(False); all += [a, b]\n    try:\n      while True: a.send(b'x' * 65536)\n    except BlockingIOError: pass\nexcept OSError as e: print('stopped', e.errno)\n", killed: []gvisor.KilledBy{"", gvisor.KilledByMemory}},
	}
}

func (a assault) request() gvisor.Request {
	r := gvisor.Request{Image: "default", Argv: []string{"bash", "-c", a.script}, Limits: sallyport.DefaultLimits()}
	if strings.HasPrefix(strings.TrimSpace(a.script), "import ") {
		r.Argv = []string{"python3", "-c", a.script}
	}
	r.Limits.Memory, r.Limits.Disk, r.Limits.Processes, r.Limits.Output = 128<<20, 48<<20, 128, 64<<10
	if a.memory > 0 {
		r.Limits.Memory = a.memory
	}
	if r.Limits.Timeout = 2 * time.Minute; a.timeout > 0 {
		r.Limits.Timeout = a.timeout
	}
	return r
}

// neighbours are five well-behaved sandboxes: each answers all the while, and
// writes down how long the slowest answer took.
func neighbours(t *testing.T, h *gvisor.Host) (stop func() (answers int, slowest time.Duration)) {
	t.Helper()
	over := make(chan struct{})
	var mu sync.Mutex
	var all sync.WaitGroup
	n, slow := 0, time.Duration(0)
	r := gvisor.Request{Image: "default", Argv: []string{"sh", "-c", "echo $((6*7))"}, Limits: sallyport.DefaultLimits()}
	for range 5 {
		all.Go(func() {
			for live := true; live; live = !closed(over) {
				began := time.Now()
				res, err := h.Run(t.Context(), r)
				if err != nil || string(res.Stdout) != "42\n" || res.ExitCode != 0 || res.KilledBy != "" {
					t.Errorf("a neighbour was disturbed: %q, exit %d, %q, %v", res.Stdout, res.ExitCode, res.KilledBy, err)
					return
				}
				mu.Lock()
				n, slow = n+1, max(slow, time.Since(began))
				mu.Unlock()
				select {
				case <-over:
				case <-time.After(3 * time.Second):
				}
			}
		})
	}
	return func() (int, time.Duration) { close(over); all.Wait(); return n, slow }
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// freeDisk is what the file system of the runtime folders has left.
func freeDisk(t *testing.T) int64 {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &fs); err != nil {
		t.Fatal(err)
	}
	return int64(fs.Bavail) * fs.Bsize
}

// withstand runs assaults beside five neighbours.
func withstand(t *testing.T, all []assault) {
	b := newBench(t)
	stop := neighbours(t, b.host)
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			r := a.request()
			began := time.Now()
			res, err := b.host.Run(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(append(a.killed, map[bool]gvisor.KilledBy{true: "", false: "none"}[a.killed == nil]), res.KilledBy) {
				t.Errorf("killed by %q, want %q (stdout %.200q, stderr %.300q)", res.KilledBy, a.killed, res.Stdout, res.Stderr)
			}
			if a.hit != "" && !slices.Contains(res.LimitsHit, a.hit) {
				t.Errorf("limits hit %q, want %q (stdout %.200q, stderr %.300q)", res.LimitsHit, a.hit, res.Stdout, res.Stderr)
			}
			if !strings.Contains(string(res.Stdout), a.says) || int64(len(res.Stdout)) > r.Limits.Output {
				t.Errorf("%d bytes %.200q, want %q (stderr %.300q)", len(res.Stdout), res.Stdout, a.says, res.Stderr)
			}
			if res.PeakMemory > r.Limits.Memory+64<<20 {
				t.Errorf("it had %d MiB", res.PeakMemory>>20)
			}
			if d := time.Since(began); a.timeout > 0 && d > a.timeout+20*time.Second { // 2 s where the machine is quiet
				t.Errorf("took %v", d)
			}
			t.Logf("%v, peak %d MiB, killed by %q, limits %q", time.Since(began).Round(time.Millisecond), res.PeakMemory>>20, res.KilledBy, res.LimitsHit)
		})
	}
	n, slow := stop()
	if n < 5 {
		t.Errorf("the neighbours answered %d times", n)
	}
	t.Logf("neighbours: %d answers, the slowest after %v", n, slow.Round(time.Millisecond))
}

// Filling whatever can be written ends in an error inside, and costs the host
// nothing on its disk.
func TestTO55_DiskAndOutput(t *testing.T) {
	before := freeDisk(t)
	withstand(t, diskAssaults())
	if used := before - freeDisk(t); used > 2<<30 { // others use this disk, too; what was written is ten times that
		t.Errorf("the host's disk has %d MiB less", used>>20)
	}
}

// What neither hears signals nor moves is a timeout.
func TestTO56_DeafAndFrozen(t *testing.T) { withstand(t, timeAssaults()) }

// Memory in every shape counts, and the host's own processes are never the
// first to go.
func TestTO57_MemoryInEveryShape(t *testing.T) {
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil || strings.TrimSpace(string(score)) > "0" {
		t.Errorf("the host's own score is %s, %v; sandboxes have 500", score, err)
	}
	withstand(t, memoryAssaults())
	b := newBench(t)
	for what, r := range map[string]gvisor.Request{
		"argv":  {Argv: slices.Repeat([]string{strings.Repeat("x", 128<<10)}, 10)},
		"env":   {Argv: []string{"true"}, Env: []string{"A=" + strings.Repeat("x", 2<<20)}},
		"stdin": {Argv: []string{"true"}, Stdin: make([]byte, 65<<20)},
		"files": {Argv: []string{"true"}, Files: []gvisor.File{{Path: "x", Content: make([]byte, 600<<20)}}},
	} {
		r.Image, r.Limits = "default", sallyport.DefaultLimits()
		if _, err := b.host.Run(t.Context(), r); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("too much %s: %v", what, fmt.Sprintf("%.200v", err))
		}
	}
}
