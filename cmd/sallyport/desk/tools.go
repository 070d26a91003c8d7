package desk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/relational"
)

// Tools is the operator's view of the catalogue.
type Tools struct {
	Tenant  string
	Catalog *catalog.Catalog
	Store   *relational.Store
}

// AllTools returns the tools of every profile.
func (d Tools) AllTools(context.Context) ([]sallyport.Tool, error) { return d.Catalog.List("") }

// ShowTool returns a tool.
func (d Tools) ShowTool(_ context.Context, name string) (sallyport.Tool, error) {
	return d.Catalog.Resolve("", name)
}

// DiffTool says what changed in a definition since it was pinned.
func (d Tools) DiffTool(_ context.Context, name string) (string, error) {
	return d.Catalog.Diff(name)
}

// ApproveTool releases a tool as it is now.
func (d Tools) ApproveTool(ctx context.Context, name string, e sallyport.Entry) error {
	t, err := d.Catalog.Resolve("", name)
	if err != nil {
		return err
	}
	// On record first: a release that nobody can account for does not happen.
	if err := d.Store.AppendEntries(ctx, e); err != nil {
		return err
	}
	return d.Catalog.Approve(ctx, name, t.Digest)
}

// Pins is the catalogue's pins, in the store.
type Pins struct {
	Tenant string
	Store  *relational.Store
}

// GetPin returns the pinned definition of a tool, or nil.
func (p Pins) GetPin(ctx context.Context, server, tool string) (json.RawMessage, error) {
	pin, err := p.Store.Pin(ctx, p.Tenant, server, tool)
	if err != nil && sallyport.CodeOf(err) == sallyport.NotFound {
		return nil, nil
	}
	return pin.Definition, err
}

// PutPin pins a definition.
func (p Pins) PutPin(ctx context.Context, server, tool string, definition json.RawMessage) error {
	e, err := audit.AdminEntry(p.Tenant, sallyport.Change{Action: "tools pin", By: "system", Target: server + "/" + tool})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(definition)
	pin := store.Pin{Tenant: p.Tenant, Server: server, Name: tool, Definition: definition, Digest: hex.EncodeToString(sum[:]), Status: string(sallyport.ToolActive)}
	return p.Store.PutPins(ctx, []store.Pin{pin}, e)
}
