package escape_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
)

// A vmWeakness is a microVM with one protection taken away, by means that no
// released program has: the VMM is started with other words or descriptors, or one
// of our programs is built from changed source. A probe in the guest must see it,
// or whoever looks at the VMM from the host.
type vmWeakness struct {
	name    string
	start   func(t *testing.T, c *exec.Cmd, restored bool) // changes how the VMM is started
	confine [][2]string                                    // in the source of sallyport-init, where it confines the VMM
	guest   [][2]string                                    // in the source of the guest's process 1
	probe   string                                         // bash; run inside. NOW is the host's time
	ends    bool                                           // the probe, which a sound sandbox does not survive
	copies  bool                                           // the probe is run in several copies of one snapshot; what two say is ALIKE
	sees    []string                                       // regular expressions of lines that only the weak one has; VMM begins those of the host
}

const fdMemory, fdRoot = 3, 4 // of the VMM: places in exec.Cmd.ExtraFiles

// plantedOutside are seen by looking at the VMM.
var plantedOutside = []vmWeakness{
	{name: "the VMM as root", confine: [][2]string{{`check\("set[ug]id".*`, ""}}, sees: []string{"^VMM uid 0 "}},
	{name: "privileges in the bounding set", confine: [][2]string{{`check\("dropping capabilities".*`, "_ = c"}}, sees: []string{"^VMM capabilities$"}},
	{name: "no filter of system calls", start: withoutFilter, sees: []string{"^VMM seccomp$"}},
	{
		name: "new privileges", start: withoutFilter, confine: [][2]string{{`check\("no_new_privs".*`, ""}}, // the filter would refuse them, too
		sees: []string{"^VMM seccomp$", "^VMM no_new_privs$"},
	},
	{
		name: "the host's namespaces", // but for that of mounts: what is mounted would be the host's
		start: func(_ *testing.T, c *exec.Cmd, _ bool) {
			c.SysProcAttr.Cloneflags &^= unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		},
		sees: []string{"^VMM namespace pid$", "^VMM namespace net$", "^VMM namespace ipc$", "^VMM namespace uts$"},
	},
	{name: "files of the host", start: func(_ *testing.T, c *exec.Cmd, _ bool) {
		c.Args = slices.Insert(c.Args, slices.Index(c.Args, "--"), "show:/etc")
	}, sees: []string{"^VMM a root with shadow$"}},
	{name: "no control group", confine: [][2]string{{`joinAll\(args\[1\]\)`, ""}}, sees: []string{"^VMM control group$"}},
	{name: "a descriptor of the host", start: func(t *testing.T, c *exec.Cmd, _ bool) {
		c.ExtraFiles = append(c.ExtraFiles, opened(t, "/etc/passwd", os.O_RDONLY))
	}, sees: []string{"^VMM descriptor of /etc/passwd$"}},
	{name: "no limits", confine: [][2]string{{`Rlimit\{Cur: most, Max: most\}`, "Rlimit{Cur: most + 8192, Max: most + 8192}"}}, sees: []string{"^VMM limit Max core", "^VMM limit Max open files"}},
	{name: "a snapshot that can be written", start: func(t *testing.T, c *exec.Cmd, restored bool) {
		if restored {
			c.ExtraFiles[fdMemory] = unsealed(t, c.ExtraFiles[fdMemory])
		}
	}, sees: []string{"^VMM descriptor that can write /memfd:sallyport-ram"}},
	{name: "an image that can be written", start: func(t *testing.T, c *exec.Cmd, _ bool) {
		c.ExtraFiles[fdRoot] = writableCopy(t, c.ExtraFiles[fdRoot])
		replaceWord(t, c, ",readonly=on,", ",readonly=off,")
	}, probe: "./probe hardware", sees: []string{"^DISK vda rw$", "^VMM descriptor that can write .*erofs$"}},
}

// plantedInside are seen from the guest. The programs that the guest shares with
// gVisor are weakened there.
var plantedInside = []vmWeakness{
	{name: "a network card", start: func(_ *testing.T, c *exec.Cmd, _ bool) {
		c.Args = append(c.Args, "-netdev", "user,id=nic", "-device", "virtio-net-device,netdev=nic")
	}, probe: "./probe hardware", sees: []string{"^BUS virtio 0x0001$"}},
	{name: "a root that can be written", guest: [][2]string{{`mount\("/dev/vda", image, .*`, `
	for _, d := range []string{"/low", "/up"} {
		must(os.Mkdir(d, 0o755), d)
	}
	mount("/dev/vda", "/low", "erofs", unix.MS_RDONLY, "")
	mount("tmpfs", "/up", "tmpfs", 0, "")
	must(errors.Join(os.Mkdir("/up/a", 0o755), os.Mkdir("/up/b", 0o755)), "/up")
	mount("overlay", image, "overlay", 0, "lowerdir=/low,upperdir=/up/a,workdir=/up/b")`}}, probe: "./probe mounts", sees: []string{"^MOUNT / .* rw$"}},
	{
		name: "settings that can be written", guest: [][2]string{{`mount\("sysfs", image\+"/sys", "sysfs", unix.MS_RDONLY\|`, `mount("sysfs", image+"/sys", "sysfs", `}},
		probe: "./probe mounts", sees: []string{"^MOUNT /sys sysfs rw$"},
	},
	{name: "one device more", guest: [][2]string{{`\{"null", 1, 3\}`, `{"null", 1, 3}, {"kmsg", 1, 11}`}}, probe: "./probe devices /tmp", sees: []string{"^DEV kmsg$"}},
	{name: "no filter of system calls in the guest", guest: [][2]string{{`refuseCalls\(\), "the filter`, `error(nil), "the filter`}}, probe: "./probe calls", sees: []string{"^DONE io_uring_setup$", "^DONE keyctl$"}},
	{name: "the ids of the snapshot", guest: [][2]string{{`m\.identity\.become\(r\)`, "error(nil)"}}, probe: "./probe leaks", sees: []string{"^VALUE /etc/machine-id 0{32}$"}},
	{name: "the random numbers of the snapshot", guest: [][2]string{{`m\.reseed\(r\.Seed\[:\]\)`, "error(nil)"}}, copies: true, probe: "od -An -tx1 -N16 /dev/urandom", sees: []string{"^ALIKE ([ 0-9a-f]{3}){16}$"}},
	{name: "the clock of the snapshot", guest: [][2]string{{`return unix\.ClockSettime\(.*`, "_ = t; return nil"}}, probe: "(( began < NOW )) && echo BEHIND", sees: []string{behind}},
	{
		name: "no bound on memory", guest: [][2]string{{`return m\.setGroup\("memory\.max".*`, "_ = n; return nil"}}, ends: true,
		probe: `python3 -c "x = b'x' * (200 << 20); print('GOT memory')"`, sees: []string{"^GOT memory$"},
	},
}

// together is all of them in one, but for what only copies on a quiet machine show.
func together(all []vmWeakness) (w vmWeakness) {
	w.name = "all protections"
	w.start = func(t *testing.T, c *exec.Cmd, restored bool) {
		for _, one := range all {
			if one.start != nil {
				one.start(t, c, restored)
			}
		}
	}
	for _, one := range all {
		if !one.copies {
			w.confine, w.guest, w.sees = append(w.confine, one.confine...), append(w.guest, one.guest...), append(w.sees, one.sees...)
		}
	}
	return w
}

// Each protection is taken away, and who watches it says so, and nobody else. A sound
// microVM has none of these lines. All at once take as long as one: without `make
// escape` that is all that is tried.
func TestPlantedMicroVMs(t *testing.T) {
	alone(t)
	all := slices.Concat(plantedOutside, plantedInside)
	every := together(all)
	var lines []string
	for _, w := range all {
		lines = append(lines, w.sees...)
	}
	t.Run("none", func(t *testing.T) {
		said := vmWeakness{name: "nothing"}.aged(t, all)
		if found := regexp.MustCompile("(?m)^VMM .*$").FindAllString(said, -1); found != nil {
			t.Errorf("a sound VMM: %q", found)
		}
		seen(t, said, nil, lines)
	})
	t.Run(every.name, func(t *testing.T) { seen(t, every.aged(t, all), every.sees, nil) })
	if !whole {
		return
	}
	for _, w := range all {
		t.Run(w.name, func(t *testing.T) {
			others := slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return slices.Contains(w.sees, s) })
			seen(t, w.aged(t, all), w.sees, others)
		})
	}
}

func seen(t *testing.T, said string, must, mustNot []string) {
	t.Helper()
	for _, s := range must {
		if !regexp.MustCompile("(?m)" + s).MatchString(said) {
			t.Errorf("nobody sees %q: %.6000s", s, said)
		}
	}
	for _, s := range mustNot {
		if found := regexp.MustCompile("(?m)" + s).FindString(said); found != "" {
			t.Errorf("it has another weakness: %s", found)
		}
	}
}

// behind is said by a guest whose clock is that of its snapshot, where that is older
// than what making the guest took.
const behind = "^BEHIND$"

// aged is says, of a snapshot as old as it takes.
func (w vmWeakness) aged(t *testing.T, all []vmWeakness) (said string) {
	t.Helper()
	await.Longer(3*time.Second, func(age time.Duration) bool {
		said = w.says(t, all, age)
		return !slices.Contains(w.sees, behind) || regexp.MustCompile("(?m)"+behind).MatchString(said)
	})
	return said
}

// says is what the probes say in a guest whose snapshot has an age, and what is seen of
// its VMM.
func (w vmWeakness) says(t *testing.T, all []vmWeakness, age time.Duration) string {
	t.Helper()
	var probes, ends, copied []string
	for _, one := range all {
		if one.copies {
			copied = append(copied, one.probe)
		} else if one.ends {
			ends = append(ends, one.probe)
		} else if !slices.Contains(probes, one.probe) {
			probes = append(probes, one.probe)
		}
	}
	p := newTool(t)
	r := tier.Request{Image: "default", Files: []tier.File{p.file}, Limits: smallLimits(), Argv: []string{"bash", "-c", ""}}
	r.Limits.Timeout *= 2
	h := w.prepared(t, r)
	time.Sleep(age)
	script := "began=$(date +%s); cp probe /tmp && cd /tmp && chmod +x probe\n" + strings.Join(probes, "\n") + "\necho LAST\nsleep 300"
	r.Argv[2] = strings.ReplaceAll(script, "NOW", fmt.Sprint(time.Now().Unix()))
	said := whileItRuns(t, h, r, func() []string { return postures["microvm"].steady(t) })
	for _, probe := range ends {
		said += saidOnce(t, h, r, probe)
	}
	for _, probe := range copied {
		said += w.alike(t, h, r, probe)
	}
	return said
}

// prepared is a snapshot of its own.
func (w vmWeakness) prepared(t *testing.T, r tier.Request) tier.Tier {
	t.Helper()
	h := w.open(t)
	if err := h.Prepare(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return h
}

func saidOnce(t *testing.T, h tier.Tier, r tier.Request, probe string) string {
	t.Helper()
	r.Argv = []string{"bash", "-c", probe}
	res, err := h.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Stdout)
}

// alike is the lines that two of several copies of one snapshot have said. The kernel
// mixes the time into its random numbers now and then: a snapshot that was taken just
// before that has copies that differ, reseeded or not, so that another is taken.
func (w vmWeakness) alike(t *testing.T, h tier.Tier, r tier.Request, probe string) (said string) {
	t.Helper()
	snapshots := 1
	if w.copies {
		snapshots = 8
	}
	for range snapshots {
		seen := map[string]bool{}
		for range 4 {
			for line := range strings.Lines(saidOnce(t, h, r, probe)) {
				if seen[line] {
					said += "ALIKE " + line
				}
				seen[line] = true
			}
		}
		if len(seen) == 0 {
			t.Errorf("control: the copies say nothing")
		}
		if said != "" || snapshots == 1 {
			break
		}
		h = w.prepared(t, r)
	}
	return said
}

// whileItRuns looks as soon as a program has said LAST, and returns what it said and
// what was seen.
func whileItRuns(t *testing.T, h tier.Tier, r tier.Request, look func() []string) string {
	t.Helper()
	var mu sync.Mutex
	var said bytes.Buffer
	last := make(chan struct{})
	r.Told = func(stderr bool, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		before := bytes.Contains(said.Bytes(), []byte("\nLAST\n"))
		if said.Write(b); !before && bytes.Contains(said.Bytes(), []byte("\nLAST\n")) {
			close(last)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	go func() {
		res, err := h.Run(ctx, r)
		ended <- fmt.Sprintf("%v, killed by %q, %.300q", err, res.KilledBy, res.Stderr)
	}()
	select {
	case <-last:
	case why := <-ended:
		cancel()
		t.Fatalf("it ended before its time: %s: %.3000s", why, said.String())
	}
	found := look()
	cancel()
	<-ended
	for _, f := range found {
		_, what, _ := strings.Cut(f, ": ")
		fmt.Fprintf(&said, "VMM %s\n", what)
	}
	return said.String()
}
