package gvisor_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
)

// Where there is no GPU, a run that needs one is refused with all that is missing,
// and never runs without.
func TestGPUIsRefusedWithTheReason(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("skipped: this machine has a GPU")
	}
	h := gvisortest.Open(t)
	_, err := h.Run(t.Context(), tier.Request{Image: "default", Argv: []string{"true"}, Limits: sallyport.DefaultLimits(), GPU: true})
	for _, want := range []string{"no NVIDIA driver is loaded", "/dev/nvidia0", "/dev/nvidiactl"} {
		if sallyport.CodeOf(err) != sallyport.Unavailable || !errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if _, probe := h.ProbeGPU(t.Context()); probe == nil || probe.Error() != err.Error() {
		t.Errorf("the probe says %v, the run %v", probe, err)
	}
	if _, err := h.OpenBox(t.Context(), tier.Request{Image: "default", Limits: sallyport.DefaultLimits(), GPU: true}); sallyport.CodeOf(err) != sallyport.Invalid {
		t.Errorf("a session: %v", err)
	}
	if all := h.List(); len(all) > 0 {
		t.Errorf("%+v", all)
	}
}
