// Package desk says the admin API's few words in those of the engines: one type
// for each thing that operators see and change.
package desk

import (
	"context"

	"sallyport.dev/sallyport/secret"
)

// Secrets takes secrets in; none comes out here.
type Secrets struct {
	Tenant  string
	Vault   *secret.Vault
	Values  *secret.Values
	Changed func() // told of each change
}

// change begins one; done is to be called after it.
func (d Secrets) change() (done func()) {
	d.Values.All() // what held until now goes on being recognised
	return func() {
		d.Values.Forget()
		d.Changed()
	}
}

// SetSecret stores a secret.
func (d Secrets) SetSecret(ctx context.Context, name, value, by string) error {
	defer d.change()()
	return d.Vault.Set(ctx, d.Tenant, name, []byte(value), by)
}

// SecretNames returns the names of all secrets.
func (d Secrets) SecretNames(ctx context.Context) (names []string, err error) {
	list, err := d.Vault.List(ctx, d.Tenant)
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names, err
}

// RemoveSecret removes a secret.
func (d Secrets) RemoveSecret(ctx context.Context, name, by string) error {
	defer d.change()()
	return d.Vault.Remove(ctx, d.Tenant, name, by)
}
