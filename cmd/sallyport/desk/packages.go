package desk

import (
	"context"
	"fmt"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/config"
)

// install installs what a server's command names, for a server that runs in a
// sandbox.
func (d *Servers) install(ctx context.Context, name string, s config.Server) error {
	if s.Isolation != config.IsolationGVisor || s.Command == "" {
		return nil
	}
	return d.Install(ctx, name, argvOf(s), s.Confinement())
}

// UpdateServer installs a server's package afresh and starts the server again.
func (d *Servers) UpdateServer(ctx context.Context, name string, e sallyport.Entry) (adminapi.ServerStatus, error) {
	d.mu.Lock()
	c, ok := d.known[name]
	d.mu.Unlock()
	if !ok {
		return adminapi.ServerStatus{}, &sallyport.Error{Code: sallyport.NotFound, Message: fmt.Sprintf("there is no server %q", name), Hint: "`sallyport servers list` names them"}
	}
	if err := d.Store.PutPins(ctx, nil, e); err != nil { // nothing to store but the record
		return adminapi.ServerStatus{}, err
	}
	if err := d.renew(ctx, name, c); err != nil {
		return adminapi.ServerStatus{}, badServer(name, err)
	}
	return d.settle(ctx, name)
}

func (d *Servers) renew(ctx context.Context, name string, c config.Server) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	if err := d.install(ctx, name, c); err != nil {
		return err
	}
	d.Backend.Remove(name)
	return d.run(ctx, name, c)
}

func argvOf(s config.Server) []string {
	if s.Command == "" {
		return nil
	}
	return append([]string{s.Command}, s.Args...)
}
