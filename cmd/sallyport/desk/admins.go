package desk

import (
	"context"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/store/relational"
)

// Admins keep the humans who decide, in the words of the admin API.
type Admins struct {
	Tenant string
	Store  *relational.Store
}

// ListAdmins returns every admin.
func (d Admins) ListAdmins(ctx context.Context) ([]sallyport.Admin, error) {
	return d.Store.Admins(ctx, d.Tenant)
}

// AddAdmin makes an admin with a new password.
func (d Admins) AddAdmin(ctx context.Context, name string, groups []string, e sallyport.Entry) (string, error) {
	all, err := d.Store.Admins(ctx, d.Tenant)
	if err != nil {
		return "", err
	}
	for _, a := range all { // in votes, two spellings of a name would be two people
		if strings.EqualFold(a.Name, name) {
			return "", &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("admin %q exists", a.Name), Hint: "`sallyport admins groups` sets the groups"}
		}
	}
	password := oauth.NewPassword()
	hash, err := oauth.HashPassword(password)
	if err != nil {
		return "", err
	}
	return password, d.Store.PutAdmin(ctx, sallyport.Admin{Tenant: d.Tenant, Name: name, Groups: groups, PasswordHash: hash, CreatedAt: e.Time}, e)
}

// SetAdminGroups replaces the groups of an admin.
func (d Admins) SetAdminGroups(ctx context.Context, name string, groups []string, e sallyport.Entry) error {
	admin, err := d.Store.Admin(ctx, d.Tenant, name)
	if err != nil {
		return err
	}
	admin.Groups = groups
	return d.Store.PutAdmin(ctx, admin, e)
}

// RemoveAdmin removes an admin, unless it is the last one. Its passkeys stay: who makes
// another admin of that name does not get rid of them.
func (d Admins) RemoveAdmin(ctx context.Context, name string, e sallyport.Entry) error {
	all, err := d.Store.Admins(ctx, d.Tenant)
	if err == nil && len(all) == 1 && all[0].Name == name {
		err = &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("%s is the last admin: nobody could decide any more", name), Hint: "add another one first"}
	}
	if err != nil {
		return err
	}
	return d.Store.DeleteAdmin(ctx, d.Tenant, name, e)
}

// ForgetPasskeys takes an admin's passkeys away, while no gateway runs.
func ForgetPasskeys(ctx context.Context, db *relational.Store, tenant, admin string) error {
	keys, err := db.Passkeys(ctx, tenant, admin)
	if err != nil {
		return err
	}
	for _, k := range keys {
		e, err := audit.AdminEntry(tenant, sallyport.Change{Action: "passkeys remove", By: "offline", Target: k.ID, Detail: map[string]any{"admin": k.Admin, "label": k.Label}})
		if err != nil {
			return err
		}
		if err := db.DeletePasskey(ctx, tenant, k.ID, e); err != nil {
			return err
		}
	}
	return nil
}
