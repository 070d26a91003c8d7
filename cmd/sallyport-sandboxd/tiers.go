package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/isolate"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/late"
)

// tiers are all that this host may have, by name. gVisor is there from the start;
// the others are opened when somebody needs them, and one that cannot be opened
// says what it lacks.
type tiers struct {
	all  map[string]tier.Tier
	late []*late.Tier
}

// An opening is how one tier is opened, and where it keeps what a host that was
// killed leaves behind.
type opening struct {
	tier string
	open func(ctx context.Context) (late.Opened, error)
	dir  string // "" for none
}

func newTiers(o options, gvisor tier.Tier, openings []opening) *tiers {
	t := &tiers{all: map[string]tier.Tier{sallyport.TierGVisor: gvisor}}
	for _, n := range openings {
		l := late.New(n.open)
		if len(o.tiers) > 0 && !slices.Contains(o.tiers, n.tier) {
			l = late.Lacking(tier.Unavailable("add it to sandbox.tiers, and restart sallyport", "the operator has switched it off"))
		} else if left, err := os.ReadDir(n.dir); err == nil && len(left) > 0 {
			l.Begin() // to remove what an earlier host left
		}
		t.all[n.tier] = l
		t.late = append(t.late, l)
	}
	return t
}

// Close ends all that runs in the tiers that were opened late.
func (t *tiers) Close() error {
	errs := make([]error, len(t.late))
	var all sync.WaitGroup
	for i, l := range t.late {
		all.Go(func() { errs[i] = l.Close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// vmWarm bounds the guests that wait, which hold more than other sandboxes do.
const vmWarm = 2

// openMicroVM opens the tier of virtual machines.
func openMicroVM(o options, way tier.Broker) opening {
	dir := filepath.Join(o.run, "microvm")
	return opening{tier: sallyport.TierMicroVM, dir: dir, open: func(context.Context) (late.Opened, error) {
		return opened(microvm.OpenFree(dir, microvm.Config{
			Programs: o.programs, Cache: o.cache, Images: images{image.NewStore(o.cache)}, Broker: way,
			MaxRuns: o.maxRuns, Queue: o.queue, Warm: min(o.warm, vmWarm),
		}))
	}}
}

// openIsolate opens the tier of V8 isolates.
func openIsolate(o options, way tier.Broker) opening {
	dir := filepath.Join(o.run, "isolate")
	return opening{tier: sallyport.TierIsolate, dir: dir, open: func(ctx context.Context) (late.Opened, error) {
		h, err := isolate.Open(isolate.Config{
			Programs: o.programs, Cache: o.cache, Dir: dir, Broker: way, MaxRuns: o.maxRuns, Queue: o.queue, Warm: o.warm,
		})
		if err != nil {
			return nil, err
		}
		if err := h.Prove(ctx); err != nil { // before anything runs
			return nil, errors.Join(err, h.Close())
		}
		return h, nil
	}}
}

// opened is a tier without the nil that would hide in an interface.
func opened[T late.Opened](t T, err error) (late.Opened, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// setTiers reads the names of those that may be opened.
func (o *options) setTiers(s string) error {
	if s == "" {
		return nil
	}
	for name := range strings.SplitSeq(s, ",") {
		if !slices.Contains(sallyport.Tiers(), name) {
			return fmt.Errorf("no tier %q: there are %s", name, strings.Join(sallyport.Tiers(), ", "))
		}
		o.tiers = append(o.tiers, name)
	}
	return nil
}
