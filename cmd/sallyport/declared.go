package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/config"
)

// fromFile is the source of an agent that the configuration declares.
const fromFile = "configuration"

// declare brings the stored agents in line with those of the configuration,
// which wins: it makes and changes them, and suspends those that it named once
// and no longer does. Their tokens come from `sallyport token`; `agents rotate`
// gives one a secret of its own.
func (d agentDesk) declare(ctx context.Context, declared map[string]config.Agent) error {
	stored, err := d.store.Agents(ctx, d.tenant)
	if err != nil {
		return err
	}
	known := map[string]sallyport.Agent{}
	for _, a := range stored {
		known[a.ID] = a
		if _, still := declared[a.ID]; a.Source == fromFile && !still {
			a.State, a.NotBefore = "suspended", time.Now()
			if err := d.put(ctx, a, known[a.ID]); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(declared)) {
		want, ok := known[id]
		if !ok {
			_, want = newAgent(d.tenant, id, nil, time.Now())
		}
		want.Source, want.State = fromFile, "active"
		want.Roles = slices.Compact(slices.Sorted(slices.Values(declared[id].Roles)))
		if declared[id].Suspended {
			want.State = "suspended"
		}
		if err := d.put(ctx, want, known[id]); err != nil {
			return err
		}
	}
	return nil
}

// put stores an agent, and says so in the record, if anything about it changed.
func (d agentDesk) put(ctx context.Context, want, have sallyport.Agent) error {
	if want.State == have.State && want.Source == have.Source && slices.Equal(want.Roles, have.Roles) {
		return nil
	}
	e, err := audit.AdminEntry(d.tenant, sallyport.Change{Action: "agents declare", By: fromFile, Target: want.ID, Detail: map[string]any{"roles": want.Roles, "state": want.State}})
	if err != nil {
		return err
	}
	defer d.cache.Invalidate()
	return d.store.PutAgent(ctx, want, e)
}
