package main

import (
	"context"
	"errors"
	"path/filepath"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cage"
	"sallyport.dev/sallyport/tier/late"
	"sallyport.dev/sallyport/wasm"
)

// openWasm opens the tier of WASI modules. Compiled modules are kept in the cache
// folder, of all sandbox hosts of a machine.
func openWasm(o options) opening {
	dir := filepath.Join(o.run, "wasm")
	return opening{tier: sallyport.TierWasm, dir: dir, open: func(ctx context.Context) (late.Opened, error) {
		house, err := cage.OpenFree(dir, cage.Config{Programs: o.programs, Max: o.maxRuns + o.warm + 8})
		if err != nil {
			return nil, err
		}
		if _, err := house.Prove(ctx); err != nil { // before anything runs
			return nil, errors.Join(err, house.Close())
		}
		h, err := wasm.Open(wasm.Config{
			Programs: o.programs, House: house, Dir: filepath.Join(o.cache, "compiled"), MaxRuns: o.maxRuns, Queue: o.queue, Warm: o.warm,
		})
		if err != nil {
			return nil, errors.Join(err, house.Close())
		}
		return caged{h, house}, nil
	}}
}

// caged is a tier that ends with the cages of its children.
type caged struct {
	late.Opened
	house *cage.House
}

// Close ends all that runs.
func (c caged) Close() error { return errors.Join(c.Opened.Close(), c.house.Close()) }
