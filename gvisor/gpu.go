package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"sallyport.dev/sallyport/gvisor/gpu"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// driverInside is where a sandbox with GPUs finds the driver's libraries: an empty
// folder of every image.
const driverInside = payload.Mounts

// driverDir is the folder that is shown there.
func (h *Host) driverDir() string { return filepath.Join(h.cfg.Dir, "driver") }

// findGPU finds what GPUs a sandbox can be shown now, or says why none.
func (h *Host) findGPU(ctx context.Context) (gpu.GPU, error) {
	known, err := h.drivers(ctx)
	if err != nil {
		return gpu.GPU{}, tier.Unavailable("see the log of sallyport-sandboxd", "gVisor does not tell which NVIDIA drivers it supports: %v", err)
	}
	g, err := h.cfg.GPUs.Find(known)
	if lack, ok := errors.AsType[*gpu.Lack](err); ok {
		return g, tier.Unavailable(lack.Hint, "this sandbox host has no GPU for a sandbox: %s", lack.What)
	}
	if err != nil {
		return g, tier.Unavailable("see the log of sallyport-sandboxd", "this sandbox host's GPU cannot be used: %v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gathered != g.Driver {
		if err := g.Gather(h.driverDir()); err != nil {
			return g, tier.Unavailable("make room, or see the log of sallyport-sandboxd", "the NVIDIA driver's libraries cannot be gathered: %v", err)
		}
		h.gathered = g.Driver
	}
	return g, nil
}

// drivers are the versions that the runtime itself says it supports.
func (h *Host) drivers(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(h.cfg.Programs, RuntimeProgram), "nvproxy", "list-supported-drivers").Output()
	known := strings.Fields(string(out))
	if err == nil && len(known) == 0 {
		err = errors.New("it names none")
	}
	return known, err
}

// ProbeGPU says what GPUs a sandbox would be shown, or why none. Nothing is run on
// one.
func (h *Host) ProbeGPU(ctx context.Context) (string, error) {
	g, err := h.findGPU(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("NVIDIA driver %s, which gVisor supports; %s", g.Driver, strings.Join(g.Names(), ", ")), nil
}
