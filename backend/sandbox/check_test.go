package sandbox_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/sandboxd"
	"sallyport.dev/sallyport/tier"
)

// probed is a tier that works and runs nothing.
type probed struct{ tier.Tier }

func (probed) Probe(context.Context, string) (string, error) { return "systrap", nil }
func (probed) List() []tier.Running                          { return nil }

// A host that is gone is not ready, however well it worked before.
func TestCheckNoticesThatTheHostIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	host := sandboxd.NewServer(sandboxd.Config{Tiers: map[string]tier.Tier{sallyport.TierGVisor: probed{}}}).Register()
	go host.Serve(l) //nolint:errcheck // it ends when it is stopped
	b, err := sandbox.Dial(path, sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for range 2 {
		if err := b.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	host.Stop()
	if err := b.Check(t.Context()); err == nil {
		t.Error("the host is gone, and the check did not notice")
	}
}
