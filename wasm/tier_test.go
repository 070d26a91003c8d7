package wasm_test

import (
	"testing"

	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/tiertest"
	"sallyport.dev/sallyport/wasm"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

// What every tier must do, with modules of WASI.
var subject = tiertest.Subject{
	Name: "wasm", Brief: true, Modules: "wasm",
	Open: func(t testing.TB, c tiertest.Config) (tier.Tier, string) {
		return wasmtest.Open(t, func(own *wasm.Config) { own.MaxRuns, own.Queue, own.Warm = c.Runs, c.Queue, c.Warm })
	},
}

func TestFO47_wasm(t *testing.T) { tiertest.Run(t, subject, "FO47") }
func TestFO48_wasm(t *testing.T) { tiertest.Run(t, subject, "FO48") }
func TestFO49_wasm(t *testing.T) { tiertest.Run(t, subject, "FO49") }
func TestFO50_wasm(t *testing.T) { tiertest.Run(t, subject, "FO50") }
func TestFO51_wasm(t *testing.T) { tiertest.Run(t, subject, "FO51") }
func TestFO52_wasm(t *testing.T) { tiertest.Run(t, subject, "FO52") }
func TestFO53_wasm(t *testing.T) { tiertest.Run(t, subject, "FO53") }
func TestTO55_wasm(t *testing.T) { tiertest.Run(t, subject, "TO55") }
func TestTO56_wasm(t *testing.T) { tiertest.Run(t, subject, "TO56") }
func TestTO57_wasm(t *testing.T) { tiertest.Run(t, subject, "TO57") }

func TestTier_wasm(t *testing.T) {
	for _, name := range tiertest.WithoutID() {
		t.Run(name, func(t *testing.T) { tiertest.Run(t, subject, name) })
	}
}
