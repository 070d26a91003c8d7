// Command sallyport-wasm runs one WASI module, confined: package wasm starts it in a
// cage of its own for each. It links little, so as to start in nothing.
package main

import (
	"os"

	"sallyport.dev/sallyport/wasm/guest"
)

func main() { os.Exit(guest.Main(os.Args[1:])) }
