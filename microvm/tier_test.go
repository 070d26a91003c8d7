package microvm_test

import (
	"testing"
	"time"

	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/tiertest"
)

// What every tier must do, in microVMs.
var subject = tiertest.Subject{
	Name: "microvm", Reaches: true, Names: true, Slow: 5, Repeats: 2, Clock: 50 * time.Millisecond,
	Open: func(t testing.TB, c tiertest.Config) (host tier.Tier, dir string) {
		h := microvmtest.Open(t, func(own *microvm.Config) {
			own.MaxRuns, own.Queue, own.Warm, own.Broker = c.Runs, c.Queue, c.Warm, c.Broker
			dir = own.Dir
		})
		return h, dir
	},
}

func TestFO47_microvm(t *testing.T) { tiertest.Run(t, subject, "FO47") }
func TestFO48_microvm(t *testing.T) { tiertest.Run(t, subject, "FO48") }
func TestFO49_microvm(t *testing.T) { tiertest.Run(t, subject, "FO49") }
func TestFO50_microvm(t *testing.T) { tiertest.Run(t, subject, "FO50") }
func TestFO51_microvm(t *testing.T) { tiertest.Run(t, subject, "FO51") }
func TestFO52_microvm(t *testing.T) { tiertest.Run(t, subject, "FO52") }
func TestFO53_microvm(t *testing.T) { tiertest.Run(t, subject, "FO53") }
func TestTO55_microvm(t *testing.T) { tiertest.Run(t, subject, "TO55") }
func TestTO56_microvm(t *testing.T) { tiertest.Run(t, subject, "TO56") }
func TestTO57_microvm(t *testing.T) { tiertest.Run(t, subject, "TO57") }

func TestTier_microvm(t *testing.T) {
	for _, name := range tiertest.WithoutID() {
		t.Run(name, func(t *testing.T) { tiertest.Run(t, subject, name) })
	}
}
