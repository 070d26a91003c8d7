package desk

import (
	"context"
	"encoding/json"
	"fmt"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/config"
)

// install installs what a server's command names, for a server that runs in a
// sandbox, and says what that is.
func (d *Servers) install(ctx context.Context, name string, s config.Server) (string, error) {
	if s.Isolation != config.IsolationGVisor || s.Command == "" {
		return "", nil
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
	installed, err := d.renew(ctx, name, c)
	if err != nil {
		return adminapi.ServerStatus{}, badServer(name, err)
	}
	st, err := d.settle(ctx, name)
	st.Package = installed
	return st, err
}

func (d *Servers) renew(ctx context.Context, name string, c config.Server) (string, error) {
	d.changing.Lock()
	defer d.changing.Unlock()
	installed, err := d.install(ctx, name, c)
	if err != nil {
		return "", err
	}
	_, text, err := parseServer(name, json.RawMessage(d.added[name]))
	if err != nil {
		text = "" // of the configuration: its document is a file
	}
	if c.OpenAPI != "" {
		return "", d.reloadAPI(ctx, name, c, text)
	}
	d.Backend.Remove(name)
	return installed, d.run(ctx, name, c, text)
}

func argvOf(s config.Server) []string {
	if s.Command == "" {
		return nil
	}
	return append([]string{s.Command}, s.Args...)
}
