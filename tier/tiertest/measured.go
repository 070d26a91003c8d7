package tiertest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/tier"
)

// measured compares a receipt with what the program found.
func measured(t *testing.T, res tier.Result) {
	t.Helper()
	var in struct {
		Processes       int
		Disk            int64
		Kernel          string
		ReadOnly, NoNew bool
		Links           []string
	}
	if err := json.Unmarshal(res.Stdout, &in); err != nil {
		t.Fatalf("%v: %q %q", err, res.Stdout, res.Stderr)
	}
	rc := res.Receipt
	if rc.Kernel != in.Kernel || !slices.Equal(rc.Links, in.Links) || rc.ReadOnly != in.ReadOnly || rc.NoNew != in.NoNew ||
		rc.Limits.Processes != in.Processes || rc.Limits.Disk != in.Disk {
		t.Errorf("warm %v: the receipt is %+v, the program measured %+v", rc.Warm, rc, in)
	}
	if in.Processes != 20 || in.Disk != 9<<20 || !in.ReadOnly || !in.NoNew || !slices.Equal(in.Links, []string{"lo"}) || rc.Limits.CPUs != 0.5 || !strings.HasPrefix(rc.Image, "sha256-") {
		t.Errorf("warm %v: the program measured %+v; CPUs %g, image %q", rc.Warm, in, rc.Limits.CPUs, rc.Image)
	}
}
