package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/cmd/sallyport/desk"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/store/configured"
)

func (a *program) adminsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "admins", Short: "Add and list admins, set their groups; give one a new password"}
	cmd.AddCommand(a.AdminsCommands()...)
	var passkeys bool
	reset := &cobra.Command{
		Use: "reset [NAME]", Short: "Give an admin (default: admin) a new password", Args: cobra.MaximumNArgs(1),
		Long: "Give an admin a new password, or make an admin of that name. The gateway must be stopped, and whoever runs this must\n" +
			"be able to write its database: an operator who may only use the socket cannot become the one who approves.",
		RunE: func(cmd *cobra.Command, args []string) error {
			name := "admin"
			if len(args) == 1 {
				name = args[0]
			}
			password, err := a.resetAdmin(cmd.Context(), name, passkeys)
			if err != nil {
				return err
			}
			return a.Show(map[string]string{"name": name, "password": password}, func() error {
				_, err := fmt.Fprintf(a.Out, "admin     %s\npassword  %s   (shown once)\n", name, password)
				return err
			})
		},
	}
	reset.Flags().BoolVar(&passkeys, "passkeys", false, "also forget the admin's passkeys: they are lost, and no other admin can remove them")
	cmd.AddCommand(reset)
	return cmd
}

func (a *program) resetAdmin(ctx context.Context, name string, passkeys bool) (password string, err error) {
	if _, err := ownerOf(a.Data); err != nil {
		return "", err
	}
	held, err := lock(a.Data)
	if err != nil {
		return "", err
	}
	defer held.Close()
	cfg, err := a.loadConfig(serveFlags{})
	if err != nil {
		return "", err
	}
	key, err := audit.LoadKey(filepath.Join(a.Data, "keys"))
	if err != nil {
		return "", err
	}
	seal, err := audit.NewSealer(key, cli.HeadsPath(a.Data, cfg.Audit.Heads))
	if err != nil {
		return "", err
	}
	db, err := configured.Open(ctx, cfg.Store, a.Data, seal)
	if err != nil {
		return "", errors.Join(err, seal.Close())
	}
	defer func() { err = errors.Join(err, db.Close(), seal.Close()) }()
	admin, err := db.Admin(ctx, tenant, name)
	if err != nil && sallyport.CodeOf(err) != sallyport.NotFound {
		return "", err
	}
	admin.Tenant, admin.Name, password = tenant, name, oauth.NewPassword()
	if admin.PasswordHash, err = oauth.HashPassword(password); err != nil {
		return "", err
	}
	e, err := audit.AdminEntry(tenant, sallyport.Change{Action: "admins reset", By: "offline", Target: name})
	if err != nil {
		return "", err
	}
	if passkeys {
		if err := desk.ForgetPasskeys(ctx, db, tenant, name); err != nil {
			return "", err
		}
	}
	return password, db.PutAdmin(ctx, admin, e)
}
