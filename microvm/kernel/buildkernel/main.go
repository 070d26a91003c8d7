// Buildkernel makes guest kernels and keeps them in the cache folder: Debian's, or
// those that are named, unless they are there. `make build` calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/microvm/kernel"
)

func main() {
	cache := flag.String("cache", image.CacheDir(os.Getenv, os.Geteuid()), "cache `folder`")
	force := flag.Bool("force", false, "make it even if it is up to date")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *cache, *force, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "buildkernel:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cache string, force bool, names []string) error {
	if runtime.GOARCH != "amd64" && len(names) == 0 {
		fmt.Println("      left out: guest kernels are made for amd64 only, so microVMs do not run here")
		return nil
	}
	if len(names) == 0 {
		names = []string{kernel.Debian}
	}
	for _, name := range names {
		if !force && kernel.UpToDate(cache, name) {
			continue
		}
		k, err := kernel.Build(ctx, cache, name, func(s string) { fmt.Println("      " + s) })
		if err != nil {
			return err
		}
		fmt.Printf("      %s: Linux %s of %s %s\n", k.Name, k.Release, k.Package.Name, k.Package.Version)
	}
	return nil
}
