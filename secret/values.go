package secret

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Value is a secret with its name.
type Value struct{ Name, Value string }

// Values are a tenant's secrets in the clear, to recognise them where they must
// not be. They are read anew when they are some seconds old. What was replaced or
// removed meanwhile is recognised for a while longer: a server may still tell of it.
type Values struct {
	vault  *Vault
	tenant string
	failed func(error)

	mu    sync.Mutex  // guards the rest
	list  []Value     // those of now, then the earlier ones
	now   int         // of those of now
	until []time.Time // the earlier ones are recognised
	read  time.Time
}

// For how long, and how many, of the values that hold no more.
const (
	keptFor = 24 * time.Hour
	maxKept = 64
)

// keep appends the values that hold no more. Preconditions: mu is held.
func (s *Values) keep(list []Value) {
	kept, until := []Value(nil), []time.Time(nil)
	for i, v := range s.list {
		end := time.Now().Add(keptFor)
		if i >= s.now {
			end = s.until[i-s.now]
		}
		if time.Now().Before(end) && !slices.Contains(list, v) {
			kept, until = append(kept, v), append(until, end)
		}
	}
	if len(kept) > maxKept { // those that were replaced last come first
		kept, until = kept[:maxKept], until[:maxKept]
	}
	s.now, s.until, s.list = len(list), until, append(list, kept...)
}

// valuesAge bounds how long a change by another gateway goes unseen.
const valuesAge = 5 * time.Second

// Values returns those of a tenant. failed is told of what cannot be read; what
// could be before goes on being recognised.
func (v *Vault) Values(tenant string, failed func(error)) *Values {
	return &Values{vault: v, tenant: tenant, failed: failed}
}

// All returns the secrets. The caller must not modify it.
func (s *Values) All() []Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.read) < valuesAge {
		return s.list
	}
	ctx, cancel := context.WithTimeout(context.Background(), valuesAge)
	defer cancel()
	names, err := s.vault.List(ctx, s.tenant)
	if err != nil {
		s.failed(err)
		return s.list
	}
	list := make([]Value, 0, len(names))
	for _, n := range names {
		value, err := s.vault.Resolve(ctx, s.tenant, n.Name)
		if err != nil {
			s.failed(err)
			continue
		}
		list = append(list, Value{n.Name, string(value)})
	}
	s.keep(list)
	s.read = time.Now()
	return s.list
}

// Forget has the next call read them anew: one of them was changed here.
func (s *Values) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = time.Time{}
}
