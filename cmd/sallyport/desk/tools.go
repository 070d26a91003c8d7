package desk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/library"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/relational"
)

// Tools is the operator's view of the catalogue.
type Tools struct {
	Tenant  string
	Catalog *catalog.Catalog
	Library *library.Library
	Store   *relational.Store
}

// AllTools returns the tools of every profile, and the prompts and templates that
// wait for a human.
func (d Tools) AllTools(context.Context) ([]sallyport.Tool, error) {
	list, err := d.Catalog.List("")
	remarks := d.Catalog.Remarks()
	list = slices.Clone(list)
	for i := range list {
		list[i].Remarks = remarks[list[i].Name]
	}
	return append(list, d.Library.Waiting()...), err
}

// ShowTool returns a tool, or a prompt or template.
func (d Tools) ShowTool(_ context.Context, name string) (sallyport.Tool, error) {
	if library.IsHandle(name) {
		return d.Library.Show(name)
	}
	t, err := d.Catalog.Resolve("", name)
	t.Remarks = d.Catalog.Remarks()[name]
	return t, err
}

// DiffTool says what changed in a definition since it was pinned.
func (d Tools) DiffTool(_ context.Context, name string) (adminapi.ToolDiff, error) {
	diff := d.Catalog.Diff
	if library.IsHandle(name) {
		diff = d.Library.Diff
	}
	x, err := diff(name)
	return adminapi.ToolDiff{
		Diff: x.Lines, Digest: x.Digest, Version: x.Pinned, Next: x.Next, Change: string(x.Kind), Reasons: x.Reasons, Remarks: x.Remarks,
	}, err
}

// ApproveTool releases a tool as it is now, if that is what the digest says, or
// none is given.
func (d Tools) ApproveTool(ctx context.Context, name, digest string, e sallyport.Entry) error {
	t, err := d.ShowTool(ctx, name)
	if err != nil {
		return err
	}
	// On record first: a release that nobody can account for does not happen.
	if err := d.Store.AppendEntries(ctx, e); err != nil {
		return err
	}
	if library.IsHandle(name) {
		return d.Library.Approve(ctx, name, cmp.Or(digest, t.Digest))
	}
	return d.Catalog.Approve(ctx, name, cmp.Or(digest, t.Digest))
}

// Pins is the catalogue's pins, in the store.
type Pins struct {
	Tenant string
	Store  *relational.Store
}

// GetPin returns what is pinned of a tool, or nothing.
func (p Pins) GetPin(ctx context.Context, server, tool string) (catalog.Pin, error) {
	pin, err := p.Store.Pin(ctx, p.Tenant, server, tool)
	if err != nil && sallyport.CodeOf(err) == sallyport.NotFound {
		return catalog.Pin{}, nil
	}
	if sum := sha256.Sum256(pin.Definition); err == nil && hex.EncodeToString(sum[:]) != pin.Digest {
		return catalog.Pin{}, &sallyport.Error{Code: sallyport.Unavailable, Message: fmt.Sprintf("the pin of tool %.64q of server %.64q was altered", tool, server)}
	}
	return catalog.Pin{Definition: pin.Definition, Version: pin.Version, Accepted: pin.Accepted, Endpoint: pin.Endpoint}, err
}

// atOnce is how many pins go into one transaction, and one entry of the record.
const atOnce = 200

// PutPins pins definitions.
func (p Pins) PutPins(ctx context.Context, server string, pins map[string]catalog.Pin) error {
	for tools := range slices.Chunk(slices.Sorted(maps.Keys(pins)), atOnce) {
		c := sallyport.Change{Action: "tools pin", By: "system", Target: server + "/" + tools[0]}
		if len(tools) > 1 {
			c.Target, c.Detail = server, map[string]any{"tools": tools}
		}
		e, err := audit.AdminEntry(p.Tenant, c)
		if err != nil {
			return err
		}
		list := make([]store.Pin, 0, len(tools))
		for _, tool := range tools {
			what := pins[tool]
			sum := sha256.Sum256(what.Definition)
			list = append(list, store.Pin{
				Tenant: p.Tenant, Server: server, Name: tool, Definition: what.Definition, Version: what.Version, Accepted: what.Accepted, Endpoint: what.Endpoint,
				Digest: hex.EncodeToString(sum[:]), Status: string(sallyport.ToolActive),
			})
		}
		if err := p.Store.PutPins(ctx, list, e); err != nil {
			return err
		}
	}
	return nil
}
