package main

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	"sallyport.dev/sallyport/cage"
)

// cages are those of isolates and of modules: one House for both tiers, opened and
// proven when the first of them is needed.
type cages struct {
	dir    string
	config cage.Config

	mu    sync.Mutex
	house *cage.House // nil until then
}

func newCages(o options) *cages {
	// One for each run of either tier, for what waits in pools, and for what is ending.
	most := 2*o.maxRuns + 4*o.warm + 16
	return &cages{dir: filepath.Join(o.run, "cage"), config: cage.Config{Programs: o.programs, Max: most}}
}

// open returns the House, in which each protection has been proven.
func (c *cages) open(ctx context.Context) (*cage.House, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.house != nil {
		return c.house, nil
	}
	h, err := cage.OpenFree(c.dir, c.config)
	if err != nil {
		return nil, err
	}
	if _, err := h.Prove(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	c.house = h
	return h, nil
}

// Close ends what the tiers left.
// Preconditions: no tier is opened any more.
func (c *cages) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.house == nil {
		return nil
	}
	return c.house.Close()
}
