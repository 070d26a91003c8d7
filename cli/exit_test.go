package cli

import (
	"testing"

	"sallyport.dev/sallyport"
)

// A failure is one for whoever looks at the status, whatever a module's was.
func TestStatusesThatDoNotFit(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, 255: 255, 256: 255, 1 << 16: 255, 1<<31 - 1: 255, -1: 255} {
		if got := ExitCode(Exit(n)); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

// A call that was taken back never ran: that is no failure of its tool.
func TestTakenBackIsDenied(t *testing.T) {
	for e, want := range map[*sallyport.Error]int{
		{Code: sallyport.Canceled, Ticket: "tkt_1"}: ExitDenied,
		{Code: sallyport.Canceled}:                  ExitTool, // interrupted
		{Code: sallyport.Rejected, Ticket: "tkt_1"}: ExitDenied,
	} {
		if got := ExitCode(e); got != want {
			t.Errorf("%+v: %d, want %d", e, got, want)
		}
	}
}
