package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/tier/choose"
)

// RunCommand implements adminapi.Sandbox.
func (h *Host) RunCommand(ctx context.Context, c adminapi.SandboxCommand) (adminapi.SandboxResult, error) {
	if h.Backend == nil {
		return adminapi.SandboxResult{}, h.Missing()
	}
	if _, err := egress.ParseRules(c.Allow); err != nil {
		return adminapi.SandboxResult{}, &sallyport.Error{Code: sallyport.Invalid, Message: err.Error(), Hint: "for example --allow api.example.com:443"}
	}
	limits := sallyport.DefaultLimits()
	if c.Timeout != 0 {
		t := time.Duration(c.Timeout * float64(time.Second))
		if t <= 0 || t > limits.Timeout {
			return adminapi.SandboxResult{}, &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("timeout: more than 0 and at most %s", limits.Timeout)}
		}
		limits.Timeout = t
	}
	in, err := choose.For(needOf(c), func(tier string) error { return h.Lack(ctx, tier) })
	if err != nil {
		return adminapi.SandboxResult{}, err
	}
	run := sandbox.Command{Argv: c.Argv, Stdin: c.Stdin, Files: c.Files, Tier: in.Tier, Image: c.Image, Limits: limits, CallID: "cli", Owner: "cli", Reach: c.Allow}
	if c.Module != nil {
		run.Module = &sandbox.Module{Language: c.Module.Language, Code: c.Module.Code}
	}
	o, err := h.Exec(ctx, run)
	return adminapi.SandboxResult{
		ExitCode: o.ExitCode, Signal: o.Signal, Stdout: o.Stdout, Stderr: o.Stderr, KilledBy: o.KilledBy, LimitsHit: o.LimitsHit,
		Truncated: o.Truncated, SandboxID: o.SandboxID, Tier: o.Tier, TierReason: in.Reason, Duration: float64(o.Duration) / float64(time.Millisecond),
		Connections: o.Connections, Receipt: o.Receipt,
	}, err
}

// needOf is what an operator's command needs: he is trusted as an agent is, unless
// he names a tier.
func needOf(c adminapi.SandboxCommand) choose.Need {
	n := choose.Need{
		Trust: "agent", Language: "command", Tiers: []string{sallyport.TierGVisor, sallyport.TierMicroVM}, Asked: c.Tier,
		Files: len(c.Files) > 0, Image: c.Image != "", Reach: len(c.Allow) > 0,
	}
	if c.Module != nil {
		n.Trust, n.Language, n.Tiers = "light", c.Module.Language, []string{sallyport.TierIsolate, sallyport.TierWasm}
	}
	return n
}

// Running implements adminapi.Sandbox.
func (h *Host) Running(ctx context.Context) ([]adminapi.SandboxInfo, error) {
	if h.Backend == nil {
		return nil, h.Missing()
	}
	list, _, err := h.List(ctx)
	out := make([]adminapi.SandboxInfo, 0, len(list))
	for _, s := range list {
		state := "running"
		if s.Deleting {
			state = "deleting"
		}
		out = append(out, adminapi.SandboxInfo{ID: s.ID, Tier: s.Tier, CallID: s.CallID, Started: s.Started, State: state})
	}
	return out, err
}

// Lack says why no sandbox of a tier can be had now. Without a sandbox host it
// says nothing: every call is refused for that.
func (h *Host) Lack(ctx context.Context, tier string) error {
	if h.Backend == nil {
		return nil
	}
	return h.Backend.Lack(ctx, tier)
}

// provenWithin bounds what one look at all tiers may take.
const provenWithin = time.Minute

// Tiers implements adminapi.Sandbox.
func (h *Host) Tiers(ctx context.Context) ([]adminapi.TierInfo, error) {
	if h.Backend == nil {
		return nil, h.Missing()
	}
	ctx, cancel := context.WithTimeout(ctx, provenWithin)
	defer cancel()
	var out []adminapi.TierInfo
	for _, s := range h.Backend.Tiers(ctx) {
		i := adminapi.TierInfo{Tier: s.Tier, Works: s.Lack == nil, Proof: s.Proof, Since: s.Since}
		if s.Lack != nil {
			i.Lack = s.Lack.Error()
		}
		if e, ok := errors.AsType[*sallyport.Error](s.Lack); ok {
			i.Lack, i.Hint = e.Message, e.Hint
		}
		out = append(out, i)
	}
	return out, nil
}
