package isolate

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cage"
	"sallyport.dev/sallyport/isolate/workerd"
)

// held is how a process really is held, read back from its kernel while it runs.
type held struct {
	memory    int64 // of the control group, less overhead
	cpus      float64
	threads   int
	links     []string
	readOnly  bool
	noNew     bool
	unbounded bool // a capability is left
}

// readHeld reads it.
func readHeld(c *cage.Child) (h held, err error) {
	memory, cpus := c.Held()
	h.memory, h.cpus = max(0, memory-overhead), cpus
	read := func(name string) []string {
		b, e := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.PID, name))
		if e != nil && err == nil {
			err = e
		}
		return strings.Split(string(b), "\n")
	}
	for _, l := range read("status") {
		name, v, _ := strings.Cut(l, ":")
		switch v = strings.TrimSpace(v); name {
		case "NoNewPrivs":
			h.noNew = v == "1"
		case "CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb":
			h.unbounded = h.unbounded || strings.Trim(v, "0") != ""
		}
	}
	for _, l := range read("limits") {
		if f := strings.Fields(strings.TrimPrefix(l, "Max processes")); strings.HasPrefix(l, "Max processes") && len(f) > 0 {
			h.threads, _ = strconv.Atoi(f[0])
		}
	}
	for _, l := range read("mountinfo") {
		if f := strings.Fields(l); len(f) > 5 && f[4] == "/" {
			h.readOnly = strings.HasPrefix(f[5], "ro")
		}
	}
	for i, l := range read("net/dev") {
		if name, _, ok := strings.Cut(l, ":"); ok && i > 1 {
			h.links = append(h.links, strings.TrimSpace(name))
		}
	}
	return h, err
}

// receipt tells how a call was held.
func (c *call) receipt(exit string, e sallyport.AppliedEgress) sallyport.Receipt {
	h := c.p.held
	if e.Rules == nil {
		e.Rules = []string{}
	}
	return sallyport.Receipt{
		Tier: sallyport.TierIsolate, Platform: platformName, Runtime: workerd.Version, Image: "sha256-" + workerd.Digest(), Warm: c.warm, Exit: exit,
		Limits: sallyport.AppliedLimits{
			Memory: h.memory, CPUs: h.cpus, Processes: h.threads, Output: c.out.max, Timeout: c.request.Limits.Timeout.Milliseconds(),
		},
		Egress: e, Links: h.links, ReadOnly: h.readOnly, NoNew: h.noNew, Unbounded: h.unbounded,
	}
}
