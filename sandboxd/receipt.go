package sandboxd

import (
	"math"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

func toReceipt(r sallyport.Receipt) *sandboxpb.Receipt {
	if r.Tier == "" {
		return nil
	}
	return &sandboxpb.Receipt{
		Tier: r.Tier, Platform: r.Platform, Accelerator: r.Accel, Runtime: r.Runtime, Kernel: r.Kernel, Image: r.Image, Warm: r.Warm, Exit: r.Exit,
		Limits: &sandboxpb.Limits{
			TimeoutMs: r.Limits.Timeout, MemoryBytes: r.Limits.Memory, Processes: int32(min(r.Limits.Processes, math.MaxInt32)),
			DiskBytes: r.Limits.Disk, OutputBytes: r.Limits.Output, Cpus: r.Limits.CPUs,
		},
		Rules: r.Egress.Rules, Injected: r.Egress.Injected, Links: r.Links,
		ReadOnlyRoot: r.ReadOnly, NoNewPrivs: r.NoNew, HasCapabilities: r.Unbounded,
	}
}
