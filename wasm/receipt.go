package wasm

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/wasm/guest"
)

// held is how a child really is, as the host's kernel has it: read from outside,
// after the child was confined and before it was given anything.
type held struct {
	memory  int64 // of its control group
	cpus    float64
	links   []string
	noNew   bool
	caps    bool // it has a capability
	warm    bool
	version string // of wazero
	known   bool
}

// look reads what the kernel says of a child.
func (s *instance) look() held {
	w := held{links: []string{}}
	w.memory, w.cpus = s.child.Held()
	dir := fmt.Sprintf("/proc/%d/", s.child.PID)
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return w
	}
	w.known = true
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "NoNewPrivs":
			w.noNew = value == "1"
		case "CapPrm", "CapEff", "CapInh", "CapAmb":
			bits, err := strconv.ParseUint(value, 16, 64)
			w.caps = w.caps || err != nil || bits != 0
		}
	}
	f, err := os.Open(dir + "net/dev")
	if err != nil {
		w.known = false
		return w
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if name, _, ok := strings.Cut(sc.Text(), ":"); ok {
			w.links = append(w.links, strings.TrimSpace(name))
		}
	}
	return w
}

// receipt tells how the run was held. A module has no way to start a second
// program, and sees no file of a host.
func (s *instance) receipt() sallyport.Receipt {
	r := sallyport.Receipt{
		Tier: sallyport.TierWasm, Platform: platform, Runtime: s.held.version, Kernel: guest.API, Image: "sha256-" + s.nature.digest, Warm: s.held.warm,
		Exit: "failed", Egress: sallyport.AppliedEgress{Rules: []string{}}, Links: s.held.links, ReadOnly: true,
		NoNew: s.held.noNew, Unbounded: s.held.caps || !s.held.known,
		Limits: sallyport.AppliedLimits{
			Memory: max(0, s.held.memory-s.spare), CPUs: s.held.cpus, Processes: 1, Disk: s.nature.disk,
			Output: s.stdout.Max.Load(), Timeout: s.limits.Timeout.Milliseconds(),
		},
	}
	switch {
	case s.exit.starved():
		r.Exit = string(tier.KilledByMemory)
	case s.exit.has(guest.Trapped):
		r.Exit = "signaled"
	case s.exit != nil:
		r.Exit = "exited"
	case s.exited.OOM:
		r.Exit = string(tier.KilledByMemory)
	case errors.Is(s.stopped, tier.ErrTimeout):
		r.Exit = string(tier.KilledByTimeout)
	case errors.Is(s.stopped, tier.ErrStopped):
		r.Exit = "signaled"
	}
	return r
}

// RuntimeVersion is the version of wazero in a program.
func RuntimeVersion(program string) string {
	return tier.VersionIn(program, "github.com/tetratelabs/wazero")
}
