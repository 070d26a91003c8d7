// Package tier is what sandboxes of every kind have in common: what is asked of
// one, how it ended, and the way out of it. Packages that run code (gvisor and
// its peers) each implement Tier.
package tier

import (
	"context"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier/talk"
)

// A Tier runs one program in one sandbox.
type Tier interface {
	// Probe really runs a program and says how, or why it can't.
	Probe(ctx context.Context, image string) (platform string, err error)
	// Run runs one program to its end, in a sandbox of its own. When Run returns,
	// the sandbox and all that it held are gone. A program that fails, is killed or
	// runs into a limit is a Result; an error means that the sandbox failed, and is
	// a *sallyport.Error or the end of ctx.
	Run(ctx context.Context, r Request) (Result, error)
	// List returns the sandboxes that exist now.
	List() []Running
	// Kill ends one sandbox and reports whether it existed.
	Kill(id string) bool
}

// WorkDir is where files and code lie and where programs start. It is the
// home of the sandbox's user, uid 1000.
const WorkDir = "/home/agent"

// A Request is one program to run. It never names anything of the host.
type Request struct {
	Image  string   // digest, or "default"
	Argv   []string // what to run; argv[0] is looked up in /usr/local/bin, /usr/bin, /bin
	Env    []string // NAME=value, over the defaults; held in memory only
	Files  []File   // made in WorkDir before the program starts
	Stdin  []byte
	Limits sallyport.Limits // no zero fields
	Way    Way              // out of the sandbox
	Module *Module          // what to run in a tier without an operating system; Argv are then its arguments
	GPU    bool             // the program is to have the host's GPUs; a tier that cannot show them refuses
	Owner  string           // opaque; what is used again is so for one owner only, and never for ""
	CallID string           // a label for lists and logs; never reaches the sandbox

	// Told, if set, is told of output as it comes, as far as it is kept. Calls do
	// not overlap; they hold the program up, and end before Run does.
	Told func(stderr bool, b []byte)
	Talk *talk.Line // the program may talk with whoever asked for the run; nil if not
}

// A Module is code for a runtime that a tier brings along.
type Module struct {
	Language string // "javascript", "wasm"
	Code     []byte
	Digest   string // of wasm without Code, sha256 in hex: who does not have it fails with NotFound
}

// A Running is one sandbox that exists now.
type Running struct {
	ID      string
	CallID  string
	Started time.Time

	Deleting bool // nothing runs in it; what is left of it cannot be deleted yet
}

// A File is one file of a request.
type File struct {
	Path    string // relative, slash-separated, clean
	Content []byte
}

// Images finds images. (image)
type Images interface {
	// Find returns the image of a digest, or the default one for "default".
	Find(ref string) (Image, error)
}

// An Image is a read-only EROFS file.
type Image struct {
	Digest string // sha256 hex of the file, perhaps with a "sha256-" in front
	Path   string
}
