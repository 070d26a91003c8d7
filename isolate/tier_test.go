package isolate_test

import (
	"testing"

	"sallyport.dev/sallyport/isolate"
	"sallyport.dev/sallyport/isolate/isolatetest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/tiertest"
)

// What every tier must do, in V8 isolates.
var subject = tiertest.Subject{
	Name: "isolate", Brief: true, Modules: "javascript", Reaches: true, Again: true, Own: 160 << 20,
	Open: func(t testing.TB, c tiertest.Config) (host tier.Tier, dir string) {
		h := isolatetest.Open(t, func(own *isolate.Config) {
			own.MaxRuns, own.Queue, own.Warm, own.Broker = c.Runs, c.Queue, c.Warm, c.Broker
			dir = own.House.Dir()
		})
		return h, dir
	},
}

func TestFO47_isolate(t *testing.T) { tiertest.Run(t, subject, "FO47") }
func TestFO48_isolate(t *testing.T) { tiertest.Run(t, subject, "FO48") }
func TestFO49_isolate(t *testing.T) { tiertest.Run(t, subject, "FO49") }
func TestFO50_isolate(t *testing.T) { tiertest.Run(t, subject, "FO50") }
func TestFO51_isolate(t *testing.T) { tiertest.Run(t, subject, "FO51") }
func TestFO52_isolate(t *testing.T) { tiertest.Run(t, subject, "FO52") }
func TestFO53_isolate(t *testing.T) { tiertest.Run(t, subject, "FO53") }
func TestTO55_isolate(t *testing.T) { tiertest.Run(t, subject, "TO55") }
func TestTO56_isolate(t *testing.T) { tiertest.Run(t, subject, "TO56") }
func TestTO57_isolate(t *testing.T) { tiertest.Run(t, subject, "TO57") }

func TestTier_isolate(t *testing.T) {
	for _, name := range tiertest.WithoutID() {
		t.Run(name, func(t *testing.T) { tiertest.Run(t, subject, name) })
	}
}
