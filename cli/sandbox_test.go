package cli

import (
	"errors"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
)

// A misspelt tier is refused before a file of this machine is read, with all that there are.
func TestMisspeltTier(t *testing.T) {
	var no *sallyport.Error
	err := pack(&adminapi.SandboxCommand{Tier: "isolat", Argv: []string{"no-such.js"}}, nil)
	if !errors.As(err, &no) || no.Code != sallyport.Invalid || !strings.Contains(no.Message, `"isolat"`) {
		t.Fatalf("%v, want that there is no such tier", err)
	}
	for _, tier := range append([]string{"auto"}, sallyport.Tiers()...) {
		if !strings.Contains(no.Hint, tier) {
			t.Errorf("%q does not name %s", no.Hint, tier)
		}
	}
	for _, tier := range []string{"", "auto", sallyport.TierGVisor, sallyport.TierMicroVM} {
		if err := pack(&adminapi.SandboxCommand{Tier: tier, Argv: []string{"uname"}}, nil); err != nil {
			t.Errorf("tier %q: %v", tier, err)
		}
	}
}
