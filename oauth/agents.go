package oauth

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
)

// cachedAgents bounds the memory of an AgentCache.
const cachedAgents = 65536

// An AgentCache remembers agents, so that a call needs no query. Whoever
// changes an agent calls Invalidate; a change by another gateway on the same
// store is seen after maxAge. It implements Agents and is safe for concurrent
// use.
type AgentCache struct {
	store      Agents
	maxAge     time.Duration
	now        func() time.Time
	generation atomic.Uint64

	mu sync.RWMutex
	m  map[agentKey]cachedAgent
}

type agentKey struct{ tenant, id string }

type cachedAgent struct {
	agent      sallyport.Agent
	generation uint64
	until      time.Time
}

// NewAgentCache returns a cache over store. maxAge ≤ 0 means one second; now
// may be nil.
func NewAgentCache(store Agents, maxAge time.Duration, now func() time.Time) *AgentCache {
	if maxAge <= 0 {
		maxAge = time.Second
	}
	if now == nil {
		now = time.Now
	}
	return &AgentCache{store: store, maxAge: maxAge, now: now, m: make(map[agentKey]cachedAgent)}
}

// Invalidate makes the next use of every agent look it up again. Call it after
// the change is stored, before telling anybody that it is done.
func (c *AgentCache) Invalidate() { c.generation.Add(1) }

// Agent returns the agent with its roles sorted. The caller must not modify them.
func (c *AgentCache) Agent(ctx context.Context, tenant, id string) (sallyport.Agent, error) {
	key, now := agentKey{tenant, id}, c.now()
	// Read before the look-up: what is looked up while somebody invalidates
	// counts as old.
	generation := c.generation.Load()
	c.mu.RLock()
	known, ok := c.m[key]
	c.mu.RUnlock()
	if ok && known.generation == generation && now.Before(known.until) {
		return known.agent, nil
	}
	agent, err := c.store.Agent(ctx, tenant, id)
	if err != nil {
		return sallyport.Agent{}, err
	}
	agent.Roles = slices.Sorted(slices.Values(agent.Roles))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.m) >= cachedAgents {
		clear(c.m)
	}
	c.m[key] = cachedAgent{agent, generation, now.Add(c.maxAge)}
	return agent, nil
}
