package microvm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/qemu"
	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/tier"
)

// A chosen is the VMM that the probe found.
type chosen struct {
	backend vmm.Backend
	id      vmm.Identity
	refused []string      // those before it, and why
	took    time.Duration // from a snapshot to a guest that answers
}

// String tells which VMM it is, its accelerator, and which were refused.
func (c chosen) String() string {
	version, _, _ := strings.Cut(c.id.Version, " ")
	how := "hardware's help"
	if c.id.Accel == qemu.TCG {
		how = "software emulation"
	}
	s := fmt.Sprintf("%s %s, %s (%s), a guest answers after %.1f s", c.id.Name, version, how, c.id.Accel, c.took.Seconds())
	for _, r := range c.refused {
		first, _, _ := strings.Cut(r, "\n")
		s += "; refused: " + first
	}
	return s
}

// Probe boots a guest, or makes one of a snapshot, with the first VMM that can,
// runs `true` in it, and says which VMM it is, and its accelerator. It never looks
// at what a host claims to support. What worked is used from then on.
func (h *Host) Probe(ctx context.Context, image string) (platform string, err error) {
	c, err := h.choose(ctx, image)
	if err != nil {
		return "", err
	}
	l := sallyport.DefaultLimits()
	res, err := h.Run(ctx, tier.Request{Image: image, Argv: []string{"/bin/true"}, Limits: l})
	if err == nil && (res.ExitCode != 0 || res.KilledBy != "") {
		err = tier.Unavailable("see the log of sallyport-sandboxd", "`true` ended with %d %s in a microVM", res.ExitCode, res.KilledBy)
	}
	return c.String(), err
}

// Refused tells which VMMs and accelerators the probe tried before the one that is
// used, and why they are not.
func (h *Host) Refused() []string {
	if c := h.decided(); c != nil {
		return c.refused
	}
	return nil
}

// decided is what runs guests here, nil while that is not decided.
func (h *Host) decided() *chosen {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.chosen
}

// choose decides, once, what runs guests here.
func (h *Host) choose(ctx context.Context, image string) (*chosen, error) {
	if c := h.decided(); c != nil {
		return c, nil
	}
	file, digest, err := h.images.Find(h.cfg.Images, image)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := h.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if c := h.decided(); c != nil {
		return c, nil
	}
	k := kind{image: digest, ram: ramOf(sallyport.DefaultLimits().Memory)}
	var why []string
	for _, b := range h.cfg.backends() {
		c := &chosen{backend: b, refused: why}
		if c.id, err = b.Identity(ctx); err == nil {
			err = h.try(ctx, c, k, file)
		}
		if err == nil {
			h.mu.Lock()
			h.chosen = c
			h.mu.Unlock()
			slog.Info("microVMs", "vmm", c.id.Name, "accelerator", c.id.Accel, "version", c.id.Version, "refused", why)
			return c, nil
		}
		why = append(why, fmt.Sprintf("%s/%s: %v", c.id.Name, c.id.Accel, err))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return nil, tier.Unavailable("see `sallyport doctor`", "no microVM can run on this host: %s", strings.Join(why, "; "))
}

// try has a VMM run a guest until it answers.
// Preconditions: h.making is held.
func (h *Host) try(ctx context.Context, c *chosen, k kind, image *os.File) error {
	r, err := h.prepared(ctx, c, k, image)
	if err != nil {
		return err
	}
	patience := h.cfg.hello(c.id)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errBoot)
	defer cancel()
	defer func(began time.Time) { c.took = time.Since(began) }(time.Now())
	m, err := h.restore(ctx, c, k, r, image, k.ram, 0)
	if err != nil {
		return because(ctx, err)
	}
	return errors.Join(m.renew(ctx, guest.Bounds{}, patience), m.destroy())
}
