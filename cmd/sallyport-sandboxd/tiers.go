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
	"sallyport.dev/sallyport/wasm"
)

// tiers are all that this host may have, by name. gVisor is there from the start;
// the others are opened when somebody needs them, and one that cannot be opened
// says what it lacks.
type tiers struct {
	all   map[string]tier.Tier
	late  []*late.Tier
	cages *cages
}

// An opening is how one tier is opened, and where it keeps what a host that was
// killed leaves behind.
type opening struct {
	tier string
	open func(ctx context.Context) (late.Opened, error)
	dir  string // "" for none
}

func newTiers(o options, gvisor tier.Tier, way tier.Broker) *tiers {
	t := &tiers{all: map[string]tier.Tier{sallyport.TierGVisor: gvisor}, cages: newCages(o)}
	for _, n := range []opening{openMicroVM(o, way), openIsolate(o, t.cages, way), openWasm(o, t.cages)} {
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
	return errors.Join(append(errs, t.cages.Close())...)
}

// vmWarm bounds the guests that wait, which hold more than other sandboxes do.
const vmWarm = 2

// openMicroVM opens the tier of virtual machines.
func openMicroVM(o options, way tier.Broker) opening {
	dir := filepath.Join(o.run, "microvm")
	return opening{tier: sallyport.TierMicroVM, dir: dir, open: func(context.Context) (late.Opened, error) {
		return opened(microvm.OpenFree(dir, microvm.Config{
			Programs: o.programs, Cache: o.cache, Images: images{image.NewStore(o.cache)}, Broker: way,
			MaxRuns: o.maxRuns, Queue: o.queue, Warm: min(o.warm, vmWarm), Parked: min(o.warm, 1),
		}))
	}}
}

// openIsolate opens the tier of V8 isolates.
func openIsolate(o options, c *cages, way tier.Broker) opening {
	return opening{tier: sallyport.TierIsolate, dir: c.dir, open: func(ctx context.Context) (late.Opened, error) {
		house, err := c.open(ctx)
		if err != nil {
			return nil, err
		}
		return opened(isolate.Open(isolate.Config{House: house, Cache: o.cache, Broker: way, MaxRuns: o.maxRuns, Queue: o.queue, Warm: o.warm}))
	}}
}

// openWasm opens the tier of WASI modules. Compiled modules are kept in the cache
// folder, of all sandbox hosts of a machine.
func openWasm(o options, c *cages) opening {
	return opening{tier: sallyport.TierWasm, dir: c.dir, open: func(ctx context.Context) (late.Opened, error) {
		house, err := c.open(ctx)
		if err != nil {
			return nil, err
		}
		return opened(wasm.Open(wasm.Config{
			Programs: o.programs, House: house, Dir: filepath.Join(o.cache, "compiled"), MaxRuns: o.maxRuns, Queue: o.queue, Warm: o.warm,
		}))
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
