// Package share divides what there is a fixed amount of among tenants, and what a tenant
// has among its principals, so that nobody can take it from the others: who already has
// some gets more only while at least as much is left.
package share

import "sync"

// A Pool is safe for concurrent use.
type Pool struct {
	most int64

	mu         sync.Mutex // guards what follows
	used       int64
	tenants    map[string]int64
	principals map[owner]int64
}

type owner struct{ tenant, principal string }

// New returns a pool of so much.
func New(most int64) *Pool {
	return &Pool{most: most, tenants: map[string]int64{}, principals: map[owner]int64{}}
}

// Take takes n for a principal, unless too little would be left: as much as its tenant
// then has for the other tenants, and as much as the principal then has of what the
// tenant could still take. A tenant that is alone gets half of all, a principal a third;
// who has nothing yet gets something while there is any.
func (p *Pool) Take(tenant, principal string, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.most - p.used - n
	theirs, own := p.tenants[tenant], p.principals[owner{tenant, principal}]
	if left < 0 || theirs > 0 && theirs+n > left || own > 0 && own+n > left-theirs-n {
		return false
	}
	p.add(tenant, principal, n)
	return true
}

// Give gives back n of what Take took.
func (p *Pool) Give(tenant, principal string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(tenant, principal, -n)
}

// Preconditions: p.mu is held.
func (p *Pool) add(tenant, principal string, n int64) {
	p.used += n
	if p.tenants[tenant] += n; p.tenants[tenant] == 0 {
		delete(p.tenants, tenant)
	}
	who := owner{tenant, principal}
	if p.principals[who] += n; p.principals[who] == 0 {
		delete(p.principals, who)
	}
}

// Has is how much a tenant has, and how much of that a principal.
func (p *Pool) Has(tenant, principal string) (theirs, own int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tenants[tenant], p.principals[owner{tenant, principal}]
}

// Yields is how readily what one principal has and does not use goes to another who wants
// it: first what can be had again at no loss, then what is the other's own, then what is
// of somebody who has more. 0 is not at all.
func (p *Pool) Yields(tenant, principal, toTenant, to string, lossless bool) int {
	theirs, own := p.Has(tenant, principal)
	ours, mine := p.Has(toTenant, to)
	same := tenant == toTenant && principal == to
	switch {
	case lossless && same:
		return 4
	case lossless:
		return 3
	case same:
		return 2
	case tenant == toTenant && own > mine, tenant != toTenant && theirs > ours:
		return 1
	}
	return 0
}

// Used is how much is taken.
func (p *Pool) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}
