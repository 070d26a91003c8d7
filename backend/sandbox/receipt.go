package sandbox

import (
	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// receipt reads what the sandbox host tells of a run; nil where it tells nothing.
func receipt(r *sandboxpb.Receipt) *sallyport.Receipt {
	if r == nil {
		return nil
	}
	l := r.GetLimits()
	out := &sallyport.Receipt{
		Tier: r.Tier, Platform: r.Platform, Accel: r.Accelerator, Runtime: r.Runtime, Kernel: r.Kernel, Image: r.Image, Warm: r.Warm, Exit: r.Exit,
		Limits: sallyport.AppliedLimits{
			Memory: l.GetMemoryBytes(), CPUs: l.GetCpus(), Processes: int(l.GetProcesses()), Disk: l.GetDiskBytes(),
			Output: l.GetOutputBytes(), Timeout: l.GetTimeoutMs(),
		},
		Egress: sallyport.AppliedEgress{Rules: r.Rules, Injected: r.Injected},
		Links:  r.Links, ReadOnly: r.ReadOnlyRoot, NoNew: r.NoNewPrivs, Unbounded: r.HasCapabilities,
	}
	if out.Egress.Rules == nil {
		out.Egress.Rules = []string{}
	}
	return out
}
