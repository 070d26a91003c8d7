package sandbox

import (
	"context"

	"sallyport.dev/sallyport"
	modules "sallyport.dev/sallyport/image/module"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// Modules give out the WASI modules of tools. (image/module)
type Modules interface {
	Find(code sallyport.Script) (modules.Module, error)
}

// wasm is the language of tools whose code is a module that was built before.
const wasm = "wasm"

// placeModule is place for such a tool. Its bytes are found later.
func (c *Command) placeModule(job sallyport.Job) {
	c.Stdin, c.Argv = job.Args, []string{modules.Name(*job.Tool.Code, job.Tool.Name)}
	c.Module = &Module{Language: wasm}
}

// load finds the module of a tool.
func (b *Backend) load(c *Command, job sallyport.Job) error {
	if c.Module == nil || c.Module.Language != wasm {
		return nil
	}
	if b.o.Modules == nil {
		return refuse(sallyport.Unavailable, "report this", "this gateway gives out no modules")
	}
	m, err := b.o.Modules.Find(*job.Tool.Code)
	c.Module.Code, c.Module.Digest = m.Code, m.Digest
	return err
}

// asked is ask for a request that may have a module: one with a digest is sent by it
// first, and whole where the host does not have it.
func (b *Backend) asked(ctx context.Context, req *sandboxpb.RunRequest, c Command) (*sandboxpb.RunReply, error) {
	if c.Module == nil {
		return b.ask(ctx, req, c)
	}
	req.Module = &sandboxpb.Module{Language: c.Module.Language, Digest: c.Module.Digest}
	if c.Module.Digest != "" {
		r, err := b.ask(ctx, req, c)
		if sallyport.CodeOf(sandboxpb.FromStatus(err)) != sallyport.NotFound {
			return r, err
		}
	}
	req.Module = &sandboxpb.Module{Language: c.Module.Language, Code: c.Module.Code}
	return b.ask(ctx, req, c)
}
