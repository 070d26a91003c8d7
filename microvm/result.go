package microvm

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// conclude destroys the machine and tells how the run ended.
func (u *run) conclude() (tier.Result, error) {
	if u.ending == nil || u.end != nil {
		_ = u.m.vm.Kill() // destroy tells
		u.m.mux.Close()
	}
	u.settle()
	if u.r.Talk != nil {
		defer u.r.Talk.End()
	}
	oom := u.ending != nil && u.ending.OOMKills > 0 || u.m.group.OOMKills() > 0
	passed := u.way.close()
	res := tier.Result{
		ID: u.id, Stdout: u.stdout.Kept, Stderr: u.stderr.Kept, Truncated: u.stdout.Truncated || u.stderr.Truncated,
		Connections: append(passed.Connections, tier.Denials(u.denied)...), Output: u.output,
		Receipt: u.receipt(passed.Egress), PeakMemory: min(u.m.group.Peak(), u.m.bounds.Memory),
	}
	if e := u.ending; e != nil {
		res.PeakMemory = int64(min(e.Peak, uint64(u.m.bounds.Memory)))
		res.LimitsHit = limitsHit(*e)
	}
	if u.full && !slices.Contains(res.LimitsHit, tier.LimitDisk) {
		res.LimitsHit = append(res.LimitsHit, tier.LimitDisk)
	}
	if res.Truncated {
		res.LimitsHit = append(res.LimitsHit, tier.LimitOutput)
	}
	if err := u.m.destroy(); err != nil {
		return tier.Result{ID: u.id}, err
	}
	return u.concluded(res, oom)
}

// settle takes what the guest said before its end. An honest one has ended all its
// streams; nobody waits long for another.
func (u *run) settle() {
	late := time.AfterFunc(killPatience, func() { u.m.mux.Close() })
	defer late.Stop()
	if u.report != nil {
		u.hearOut()
	}
	<-u.stdout.Done
	<-u.stderr.Done
}

// hearOut takes what was reported before the end. Whatever ended the run, a program that
// had started is not told of as one that had not.
func (u *run) hearOut() {
	for rec := range u.report {
		switch {
		case u.end == nil:
			u.note(rec)
		case rec.Kind == payload.Started:
			u.started = true
		}
	}
}

func limitsHit(e guest.Ending) (hit []string) {
	if e.Processes {
		hit = append(hit, tier.LimitProcesses)
	}
	if e.Disk {
		hit = append(hit, tier.LimitDisk)
	}
	return hit
}

// concluded adds to a result how the program ended.
func (u *run) concluded(res tier.Result, oom bool) (tier.Result, error) {
	if u.failed != nil && !oom {
		return u.failed.Result(res, u.r.Argv[0])
	}
	if end := (tier.End{Status: u.status, OOM: oom, Started: u.started, Why: u.end}); !end.Complete(&res) {
		cause := u.end
		if cause == nil {
			cause = errors.Join(errGone, u.m.mux.Err())
			if t, ok := u.m.vm.(vmm.Teller); ok {
				cause = fmt.Errorf("%w; %s", cause, t.Ended())
			}
		}
		return res, u.sandboxError(cause)
	}
	return res, nil
}

func (u *run) sandboxError(cause error) error {
	err := tier.Broken(cause, u.started)
	if err == cause { //nolint:errorlint // the caller's own, as it is
		return err
	}
	slog.Error("sandbox failed", "sandbox", u.id, "cause", cause, "started", u.started)
	return err
}

// receipt says how the sandbox was held: what its guest read back from its kernel,
// and what the control group around the VMM has.
// Preconditions: the control group still exists.
func (u *run) receipt(e sallyport.AppliedEgress) sallyport.Receipt {
	c, m := u.h.decided(), u.m
	_, cpus := m.group.Limits()
	r := sallyport.Receipt{
		Tier: sallyport.TierMicroVM, Platform: c.id.Name, Accel: c.id.Accel, Runtime: c.id.Version, Image: m.image, Warm: m.waited,
		Exit: "failed", Egress: e,
		Limits: sallyport.AppliedLimits{
			Memory: m.bounds.Memory, CPUs: cpus, Timeout: u.r.Limits.Timeout.Milliseconds(), Output: u.r.Limits.Output,
			Processes: int(m.bounds.Procs), Disk: int64(m.bounds.Disk),
		},
		Kernel: m.facts.Kernel, Links: m.facts.Links, ReadOnly: m.facts.ReadOnlyRoot, NoNew: m.facts.NoNewPrivs,
		Unbounded: m.facts.Capabilities || !m.known,
	}
	if m.bounds.Procs == 0 { // its sandbox was made for this run: process 1 told
		r.Limits.Processes, r.Limits.Disk = int(m.facts.Procs)-1, int64(m.facts.Disk)
	}
	if r.Egress.Rules == nil {
		r.Egress.Rules = []string{}
	}
	return r
}
