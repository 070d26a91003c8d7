package tiertest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
)

// An assault is a program that wants more than its share, and what becomes of
// it: a limit by name, or nothing at all.
type assault struct {
	name    string
	core    bool   // also where nobody has time
	script  string // of bash, or python3 if it begins with import
	js      string // the same as a module
	wasi    []string
	memory  int64 // 0: 128 MiB
	timeout time.Duration
	killed  []tier.KilledBy // any of these; nil: none
	hit     string          // a limit that it is told of
	says    string          // that is in its output
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
		{name: "one big file", core: true, script: `for d in /tmp /dev/shm /run /home/agent; do head -c 200M /dev/zero >$d/big; done; df --output=used -B1M /tmp | tail -1`, hit: tier.LimitDisk},
		{name: "deleted but open", script: "import os\nf = []\ntry:\n  for i in range(200):\n    g = open('/tmp/x', 'wb'); os.unlink('/tmp/x'); f.append(g); g.write(b'x' * (1 << 20)); g.flush()\nexcept OSError as e: print('stopped', e.errno)\n", hit: tier.LimitDisk, says: "stopped 28"},
		{name: "through a mapping", script: "import mmap\nf = open('/dev/shm/m', 'w+b')\nf.truncate(200 << 20)\nm = mmap.mmap(f.fileno(), 200 << 20)\nprint('begun', flush=True)\nfor i in range(0, 200 << 20, 4096): m[i] = 1\n", hit: tier.LimitDisk, says: "begun"},
		{name: "a child's, through a mapping", script: "import mmap, os\nif os.fork() == 0:\n  f = open('m', 'w+b')\n  f.truncate(200 << 20)\n  m = mmap.mmap(f.fileno(), 200 << 20)\n  for i in range(0, 200 << 20, 4096): m[i] = 1\nprint('child', os.waitstatus_to_exitcode(os.wait()[1]))\n", hit: tier.LimitDisk, says: "child -7"},
		{name: "sparse, then real", script: "import os\nf = open('/tmp/s', 'wb')\nos.truncate('/tmp/s', 1 << 40)\ntry:\n  for i in range(300): os.pwrite(f.fileno(), b'x' * (1 << 20), i << 22)\nexcept OSError as e: print('stopped', e.errno)\n", hit: tier.LimitDisk, says: "stopped 28"},
		{name: "many small files", core: true, script: "import os\nn = 0\ntry:\n  for n in range(5_000_000): os.close(os.open('/tmp/' + 'n' * 240 + str(n), os.O_CREAT))\nexcept OSError as e: print('stopped', e.errno, n < 100_000)\n", hit: tier.LimitDisk, says: "stopped 28 True"},
		{name: "a deep tree", script: "import os\nn = 0\ntry:\n  for n in range(10_000):\n    os.mkdir('d' * 255); os.chdir('d' * 255)\nexcept OSError as e: print('stopped', e.errno)\nprint('deep', n)\n", says: "deep"},
		{
			name: "a flood of output", hit: tier.LimitOutput, script: `yes "$(head -c 8000 /dev/zero | tr '\0' x)" | head -c 20M; yes | head -c 20M >&2; exit 0`,
			js: "const line = 'x'.repeat(8000); for (let i = 0; i < 20000; i++) { console.log(line); console.error(line) }", wasi: []string{"fill", "xxxxxxxxxxxxxxxx", "2000000"},
		},
	}
}

func timeAssaults() []assault {
	timeout := []tier.KilledBy{tier.KilledByTimeout}
	return []assault{
		{name: "a loop of promises", js: "const again = () => Promise.resolve().then(again); await again()", timeout: time.Second, killed: timeout},
		{name: "a loop of timers", js: "const again = () => setTimeout(again, 0); again(); await new Promise(() => {})", timeout: time.Second, killed: timeout},
		{name: "a native call without end", js: "const a = new Array(2 ** 32 - 1); a[0] = 1; for (;;) a.indexOf(2)", timeout: time.Second, killed: timeout},
		{name: "a getter without end", js: "export const x = 1; JSON.stringify({get a() { for (;;); }})", timeout: time.Second, killed: timeout},
		{name: "recursion without end", js: "const f = () => f(); try { f() } catch (e) { console.log(e instanceof RangeError) }", wasi: []string{"recurse"}, killed: []tier.KilledBy{"", tier.KilledByMemory}},
		{name: "deaf to signals", core: true, script: spin, js: "console.log('deaf'); for (;;);", wasi: []string{"spin", "deaf"}, timeout: time.Second, killed: timeout, says: "deaf"},
		{name: "stops itself", script: `kill -STOP $$`, timeout: time.Second, killed: timeout},
		{name: "stops all of its own", script: `sleep 60 & kill -STOP -1; kill -STOP 0; sleep 60`, timeout: time.Second, killed: timeout},
		{name: "waits for a vfork", script: "import ctypes, os, time\nlibc = ctypes.CDLL(None)\nif os.posix_spawn('/bin/sh', ['sh', '-c', 'kill -STOP $$'], os.environ): os.wait()\n", timeout: time.Second, killed: timeout},
		{name: "an endless expression", script: "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')\n", js: "/^(a+)+$/.test('a'.repeat(60) + 'b')", timeout: time.Second, killed: timeout},
		{name: "forks and goes on", script: "import os\nsaid = False\nwhile True:\n  try: os.fork()\n  except OSError:\n    if not said:\n      said = True; print('refused', flush=True)\n", memory: 1 << 30, timeout: time.Second, killed: timeout, hit: tier.LimitProcesses, says: "refused"},
		{name: "forks without end", script: "import os, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\nexcept OSError as e: print('stopped', e.errno, n < 200, flush=True)\nos.kill(0, 9)\n", memory: 1 << 30, hit: tier.LimitProcesses, says: "stopped 11 True"},
	}
}

func memoryAssaults() []assault {
	memory := []tier.KilledBy{tier.KilledByMemory}
	return []assault{
		{name: "buffers", core: true, js: "const all = []; for (;;) all.push(new ArrayBuffer(16 << 20), new Uint8Array(4 << 20).fill(1))", wasi: []string{"take", "400"}, killed: memory},
		{name: "memory of WebAssembly", js: "const m = new WebAssembly.Memory({initial: 1}); try { for (;;) { m.grow(256); new Uint8Array(m.buffer).fill(1) } } catch (e) { if (!(e instanceof RangeError)) throw e }", killed: []tier.KilledBy{"", tier.KilledByMemory}},
		{name: "keys", js: "const m = new Map(); for (let i = 0; ; i++) m.set('key' + i, {i})", killed: memory},
		{name: "one long text", js: "let s = 'x'; try { for (;;) s += s } catch (e) { if (!(e instanceof RangeError)) throw e }; const all = []; for (let i = 0; i < 64; i++) all.push(s.slice(i).split('').length)", killed: memory},
		{name: "pipes", script: "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\nn = 0\ntry:\n  for n in range(10_000):\n    r, w = os.pipe(); os.set_blocking(w, False); os.write(w, b'x' * 65536)\nexcept OSError as e: print('stopped', e.errno)\n", killed: []tier.KilledBy{"", tier.KilledByMemory}},
		{name: "arguments", script: "import os\ntry: os.execv('/bin/true', ['true'] + ['x' * 131000] * 10_000)\nexcept (OSError, MemoryError) as e: print('stopped', e)\n", killed: []tier.KilledBy{"", tier.KilledByMemory}, memory: 256 << 20},
		{name: "memfd", core: true, script: "import os\nf = os.memfd_create('x')\nfor i in range(400): os.pwrite(f, b'x' * (1 << 20), i << 20)\n", killed: memory},
		{name: "mlock", script: "import ctypes, mmap\nm = mmap.mmap(-1, 400 << 20)\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.mlockall(3))\nfor i in range(0, 400 << 20, 4096): m[i] = 1\n", killed: memory},
		{name: "huge pages", script: "import mmap\ntry:\n  m = mmap.mmap(-1, 400 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)\nexcept OSError: m = mmap.mmap(-1, 400 << 20)\ntry: m.madvise(14)\nexcept OSError: pass # a kernel without them\nfor i in range(0, 400 << 20, 4096): m[i] = 1\n", killed: memory},
		{name: "pushed out to swap", script: "import ctypes, mmap\nlibc = ctypes.CDLL(None)\nopen('/tmp/s', 'wb').write(b'x' * (1 << 20))\nprint(libc.swapon(b'/tmp/s', 0), flush=True)\nheld = []\nfor i in range(100):\n  m = mmap.mmap(-1, 4 << 20); held.append(m); m.write(b'x' * (4 << 20))\n  libc.madvise(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m))), 4 << 20, 21)\n", killed: memory, says: "-1"},
		{name: "a decompression bomb", core: true, script: "import zlib\nc = zlib.compressobj(9, wbits=-15)\nbomb = (c.compress(bytes(1 << 20)) + c.flush(zlib.Z_FULL_FLUSH)) * 200 + c.flush()\nprint(len(bomb) < 1 << 20, flush=True)\nzlib.decompress(bomb, -15)\n", killed: memory, says: "True"},
		{name: "a bomb onto the disk", script: `head -c 100M /dev/zero | gzip -1 >/tmp/z; gzip -dc /tmp/z >/tmp/big; echo $((1$(stat -c %s /tmp/z) > 11000000))`, hit: tier.LimitDisk},
		{name: "files in memory", script: `head -c 300M /dev/zero >/dev/shm/x; tail -c 1 /dev/shm/x; sleep 1`, hit: tier.LimitDisk},
		{name: "sockets", script: "import socket\nall = []\nn = 0\ntry:\n  for n in range(2000):\n    a, b = socket.socketpair(); a.setblocking(False); all += [a, b]\n    try:\n      while True: a.send(b'x' * 65536)\n    except BlockingIOError: pass\nexcept OSError as e: print('stopped', e.errno)\n", killed: []tier.KilledBy{"", tier.KilledByMemory}},
	}
}

// request is the assault in the tier's language, if it has one.
func (a assault) request(t testing.TB, s Subject) (tier.Request, bool) {
	d := deed{sh: a.script, js: a.js, wasi: a.wasi}
	if strings.HasPrefix(strings.TrimSpace(a.script), "import ") {
		d.sh, d.py = "", a.script
	}
	d.limits = sallyport.Limits{Memory: or(a.memory, 128<<20), Disk: 48 << 20, Processes: 128, Output: 64 << 10, Timeout: a.timeout}
	return s.request(t, d)
}

// neighbours are five well-behaved sandboxes: each answers all the while, and
// writes down how long the slowest answer took.
func (s Subject) neighbours(t *testing.T, h tier.Tier) (stop func() (answers int, slowest time.Duration)) {
	t.Helper()
	over := make(chan struct{})
	var mu sync.Mutex
	var all sync.WaitGroup
	n, slow := 0, time.Duration(0)
	r := s.needs(t, say("42"))
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
				case <-time.After(3 * time.Second * time.Duration(or(s.Slow, 1))): // else they would only hold each other up
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

// withstand runs assaults beside five neighbours, and looks at what they take of the
// host's disk.
func (s Subject) withstand(t *testing.T, all []assault) {
	h, dir := s.Open(t, Config{Warm: 1, Runs: 8})
	stop, most := s.neighbours(t, h), mostOnDisk(t, dir)
	for _, a := range all {
		if r, ok := a.request(t, s); ok && (a.core || !s.briefly()) {
			t.Run(a.name, func(t *testing.T) { a.judge(t, h, r, s.Own) })
		}
	}
	n, slow := stop()
	if n < 5 {
		t.Errorf("the neighbours answered %d times", n)
	}
	t.Logf("neighbours: %d answers, the slowest after %v", n, slow.Round(time.Millisecond))
	calm(t, h)
	if took := most(); took > maxOnDisk {
		t.Errorf("%d MiB of the host's disk", took>>20)
	} else {
		t.Logf("%d MiB of the host's disk at the most", took>>20)
	}
}

func (a assault) judge(t *testing.T, h tier.Tier, r tier.Request, own int64) {
	began := time.Now()
	var res tier.Result
	if a.timeout > 0 && a.says != "" {
		res = cutOff(t, h, r)
	} else {
		res = run(t, h, r)
		if a.timeout > 0 {
			soon(t, began, a.timeout)
		}
	}
	if !slices.Contains(append(a.killed, map[bool]tier.KilledBy{true: "", false: "none"}[a.killed == nil]), res.KilledBy) {
		t.Errorf("killed by %q, want %q (stdout %.200q, stderr %.300q)", res.KilledBy, a.killed, res.Stdout, res.Stderr)
	}
	if a.hit != "" && !slices.Contains(res.LimitsHit, a.hit) {
		t.Errorf("limits hit %q, want %q (stdout %.200q, stderr %.300q)", res.LimitsHit, a.hit, res.Stdout, res.Stderr)
	}
	if !strings.Contains(string(res.Stdout), a.says) || int64(len(res.Stdout)) > r.Limits.Output {
		t.Errorf("%d bytes %.200q, want %q (stderr %.300q)", len(res.Stdout), res.Stdout, a.says, res.Stderr)
	}
	if res.PeakMemory > r.Limits.Memory+own {
		t.Errorf("it had %d MiB", res.PeakMemory>>20)
	}
	t.Logf("%v, peak %d MiB, killed by %q, limits %q", time.Since(began).Round(time.Millisecond), res.PeakMemory>>20, res.KilledBy, res.LimitsHit)
}

// fullDisk: filling whatever can be written ends in an error inside, and costs the
// host nothing on its disk.
func fullDisk(t *testing.T, s Subject) { s.withstand(t, diskAssaults()) }

// deafAndFrozen: what neither hears signals nor moves is a timeout.
func deafAndFrozen(t *testing.T, s Subject) { s.withstand(t, timeAssaults()) }

// memoryInEveryShape: memory counts in every shape, and the host's own processes
// are never the first to go.
func memoryInEveryShape(t *testing.T, s Subject) {
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil || strings.TrimSpace(string(score)) > "0" {
		t.Errorf("the host's own score is %s, %v; sandboxes have 500", score, err)
	}
	s.withstand(t, memoryAssaults())
	h, _ := s.Open(t, Config{})
	for what, alter := range map[string]func(*tier.Request){
		"argv":  func(r *tier.Request) { r.Argv = slices.Repeat([]string{strings.Repeat("x", 128<<10)}, 10) },
		"env":   func(r *tier.Request) { r.Env = []string{"A=" + strings.Repeat("x", 2<<20)} },
		"stdin": func(r *tier.Request) { r.Stdin = make([]byte, 65<<20) },
		"files": func(r *tier.Request) { r.Files = []tier.File{{Path: "x", Content: make([]byte, 600<<20)}} },
	} {
		r := s.needs(t, say("it ran"))
		alter(&r)
		if _, err := h.Run(t.Context(), r); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("too much %s: %v", what, fmt.Sprintf("%.200v", err))
		}
	}
}
