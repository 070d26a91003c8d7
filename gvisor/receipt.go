package gvisor

import (
	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/cgroup"
	"sallyport.dev/sallyport/tier/payload"
)

// held is how a sandbox really is, as far as it is known before its end.
type held struct {
	platform, image, runtime string
	warm                     bool
	inside                   payload.Facts // as process 1 read them back
	known                    bool          // that it did
}

// receipt tells how the run was held. It reads what enforces each limit, not
// what the request asked for; where process 1 never came to tell, what only it
// knows stays zero.
// Preconditions: the sandbox's control group still exists.
func (s *sandbox) receipt(e sallyport.AppliedEgress) sallyport.Receipt {
	memory, cpus := s.group.Limits()
	if memory > 0 {
		memory -= cgroup.KernelOverhead
	}
	r := sallyport.Receipt{
		Tier: sallyport.TierGVisor, Platform: s.held.platform, Runtime: s.held.runtime, Image: s.held.image, Warm: s.held.warm,
		Exit: "failed", Egress: e,
		Limits: sallyport.AppliedLimits{
			Memory: memory, CPUs: cpus, Timeout: s.limits.Timeout.Milliseconds(),
			Processes: int(s.held.inside.Procs), Disk: int64(s.held.inside.Disk),
		},
		Kernel: s.held.inside.Kernel, Links: s.held.inside.Links,
		ReadOnly: s.held.inside.ReadOnlyRoot, NoNew: s.held.inside.NoNewPrivs,
		Unbounded: s.held.inside.Capabilities || !s.held.known,
	}
	if s.stdout != nil {
		r.Limits.Output = s.stdout.Max.Load()
	}
	if r.Egress.Rules == nil {
		r.Egress.Rules = []string{}
	}
	return r
}

// RuntimeVersion is the version of gVisor in a program.
func RuntimeVersion(program string) string { return tier.VersionIn(program, "gvisor.dev/gvisor") }
