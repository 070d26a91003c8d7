package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/test/stage"
)

// endless is a WASI module that never ends: (func (export "_start") (loop (br 0))).
const endless = "\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x05\x03\x01\x00\x01" +
	"\x07\x13\x02\x06memory\x02\x00\x06_start\x00\x00\x0a\x09\x01\x07\x00\x03\x40\x0c\x00\x0b\x0b"

// long is a program of each tier that would run for long, and says so if it can.
var long = map[string]sandbox.Command{
	sallyport.TierGVisor:  {Argv: []string{"sh", "-c", "echo up; sleep 300"}},
	sallyport.TierMicroVM: {Argv: []string{"sh", "-c", "echo up; sleep 300"}},
	sallyport.TierIsolate: {Argv: []string{"main.js"}, Module: &sandbox.Module{Language: "javascript", Code: []byte("console.log('up'); await new Promise(() => setInterval(() => {}, 1000))")}},
	sallyport.TierWasm:    {Argv: []string{"main.wasm"}, Module: &sandbox.Module{Language: "wasm", Code: []byte(endless)}},
}

// A life is one process: pids come again.
type life struct {
	pid, parent int
	since, name string
	groups      []string // control groups of ours
}

func lives() (all map[int]life) {
	all = map[int]life{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		before, after, ok := strings.Cut(string(b), ") ")
		f := strings.Fields(after)
		if err != nil || !ok || len(f) < 20 || f[0] == "Z" {
			continue
		}
		l := life{since: f[19], name: before}
		l.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
		l.parent, _ = strconv.Atoi(f[1])
		groups, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		for line := range strings.Lines(string(groups)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) == 3 && strings.Contains(parts[2], "/sallyport/") {
				dir := strings.TrimSuffix(filepath.Join("/sys/fs/cgroup", parts[1], parts[2]), "/")
				if _, err := os.Stat(dir); err == nil {
					l.groups = append(l.groups, dir)
				}
			}
		}
		all[l.pid] = l
	}
	return all
}

// below are the processes that a process started, and those that they started.
func below(pid int) (found []life) {
	all := lives()
	for _, l := range all {
		for up, ok := all[l.parent]; ok; up, ok = all[up.parent] {
			if up.pid == pid {
				found = append(found, l)
				break
			}
		}
	}
	return found
}

// Whatever tier a program runs in, it ends with its sandbox host, asked or killed:
// no process, and after an end that was asked for no control group and no mount.
func TestFO45_EveryTierEndsWithItsHost(t *testing.T) {
	for _, killed := range []bool{false, true} {
		for _, tier := range sallyport.Tiers() {
			t.Run(fmt.Sprintf("%s killed %v", tier, killed), func(t *testing.T) { endsWithHost(t, tier, killed) })
		}
	}
}

func endsWithHost(t *testing.T, tier string, killed bool) {
	h := newHost(t)
	cmd, b := h.apart(t)
	defer b.Close()
	over := make(chan error, 1)
	var up atomic.Bool
	up.Store(tier == sallyport.TierWasm) // which is mute
	go func() {
		c := long[tier]
		c.Tier, c.Told = tier, func(bool, []byte) { up.Store(true) }
		_, err := b.Exec(context.Background(), c)
		over <- err
	}()
	var before []life
	var lack error
	for runs, end := false, time.Now().Add(5*await.Patience); !runs && lack == nil; time.Sleep(20 * time.Millisecond) { // opening one takes long where others work, too
		select {
		case lack = <-over:
		default:
		}
		list, _, err := b.List(t.Context())
		before = below(cmd.Process.Pid)
		runs = up.Load() && err == nil && len(list) == 1 && list[0].Tier == tier && len(before) > 0
		if time.Now().After(end) {
			t.Fatalf("it does not run: %v, %v", list, err)
		}
	}
	if lack != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		stage.Absent(t, lack.Error())
	}
	if killed {
		_ = cmd.Process.Kill()
	} else {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	err := cmd.Wait()
	if !killed && err != nil {
		t.Errorf("its end: %v", err)
	}
	if err := <-over; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("the call: %v", err)
	}
	gone := func() bool {
		now := lives()
		return !slices.ContainsFunc(before, func(l life) bool { return now[l.pid].since == l.since })
	}
	await.That(t, "every process is gone", gone) // what was killed a moment ago may still be seen
	if killed {
		return
	}
	for _, l := range before {
		for _, dir := range l.groups {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("control group %s of %s is left", dir, l.name)
			}
		}
	}
	if m := mounts(t, h.run); len(m) > 0 {
		t.Errorf("mounts left: %q", m)
	}
	if left := leftovers(h.run); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
