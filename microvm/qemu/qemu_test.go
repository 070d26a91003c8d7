package qemu

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"sallyport.dev/sallyport/microvm/tsc"
	"sallyport.dev/sallyport/test/stage"
)

// An emulated guest is told the speed of this host's counter, whatever that is: with
// another one its clocks would run too fast or too slow.
func TestCounterIsTheHosts(t *testing.T) {
	if _, err := exec.LookPath(Program); err != nil || runtime.GOARCH != "amd64" {
		stage.Absent(t, "QEMU is not here (package qemu-system-x86)")
	}
	line, _, err := counterSpeed()
	if err != nil {
		t.Fatal(err)
	}
	khz, err := tsc.KHz()
	if err != nil {
		t.Fatal(err)
	}
	var told int
	if _, err := fmt.Sscanf(line, "mitigations=off tsc_early_khz=%d tsc=reliable", &told); err != nil || told < khz-2000 || told > khz+2000 {
		t.Errorf("%q, and the counter has %d kHz (%v)", line, khz, err)
	}
	if id, err := (Backend{Accel: TCG}).Identity(t.Context()); err != nil || !strings.Contains(id.Append, fmt.Sprintf(" %d0 MHz", (khz+5000)/10000)) && khz%10000 > 1000 && khz%10000 < 9000 {
		t.Errorf("snapshots are bound to %q, and the counter has %d kHz (%v)", id.Append, khz, err)
	}
}
