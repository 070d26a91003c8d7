package secret

import (
	"context"
	"sync"
	"time"
)

// A Value is a secret with its name.
type Value struct{ Name, Value string }

// Values are a tenant's secrets in the clear, to recognise them where they must
// not be. They are read anew when they are some seconds old.
type Values struct {
	vault  *Vault
	tenant string
	failed func(error)

	mu   sync.Mutex // guards the rest
	list []Value
	read time.Time
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
	s.list, s.read = list, time.Now()
	return list
}

// Forget has the next call read them anew: one of them was changed here.
func (s *Values) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = time.Time{}
}
