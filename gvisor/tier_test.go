package gvisor_test

import (
	"testing"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/tiertest"
)

// What every tier must do, on gVisor.
var subject = tiertest.Subject{
	Name: "gvisor", Reaches: true,
	Open: func(t testing.TB, c tiertest.Config) (host tier.Tier, dir string) {
		h := gvisortest.Open(t, func(own *gvisor.Config) {
			own.MaxRuns, own.Queue, own.Warm, own.Broker = c.Runs, c.Queue, c.Warm, c.Broker
			dir = own.Dir
		})
		return h, dir
	},
}

func TestFO47_gvisor(t *testing.T) { tiertest.Run(t, subject, "FO47") }
func TestFO48_gvisor(t *testing.T) { tiertest.Run(t, subject, "FO48") }
func TestFO49_gvisor(t *testing.T) { tiertest.Run(t, subject, "FO49") }
func TestFO50_gvisor(t *testing.T) { tiertest.Run(t, subject, "FO50") }
func TestFO51_gvisor(t *testing.T) { tiertest.Run(t, subject, "FO51") }
func TestFO52_gvisor(t *testing.T) { tiertest.Run(t, subject, "FO52") }
func TestFO53_gvisor(t *testing.T) { tiertest.Run(t, subject, "FO53") }
func TestTO55_gvisor(t *testing.T) { tiertest.Run(t, subject, "TO55") }
func TestTO56_gvisor(t *testing.T) { tiertest.Run(t, subject, "TO56") }
func TestTO57_gvisor(t *testing.T) { tiertest.Run(t, subject, "TO57") }

func TestTier_gvisor(t *testing.T) {
	for _, name := range tiertest.WithoutID() {
		t.Run(name, func(t *testing.T) { tiertest.Run(t, subject, name) })
	}
}
