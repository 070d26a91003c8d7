// Command getworkerd puts workerd into the cache, for `make build`. Without npm there
// are no isolates, which is no failure; with -must it is one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"

	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/isolate/workerd"
)

func main() {
	must := flag.Bool("must", false, "fail where it cannot be had")
	flag.Parse()
	if why := get(); why != "" {
		fmt.Println("    no V8 isolates (`sallyport doctor` says so; everything else works):", why)
		if *must {
			os.Exit(1)
		}
	}
}

// get fetches it, unless it is there, or says why it cannot.
func get() string {
	cache := image.CacheDir(os.Getenv, os.Geteuid())
	if f, err := workerd.Find(cache); err == nil {
		f.Close()
		return ""
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "npm is not here"
	}
	fmt.Println("    fetching workerd", workerd.Version, "(V8 isolates; 47 MB)")
	if err := workerd.Install(context.Background(), cache, npm); err != nil {
		return err.Error()
	}
	return ""
}
