// Buildimage builds sandbox images of Debian's packages into the cache folder, the
// default one or those that are named, unless they are there. `make build` calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"sallyport.dev/sallyport/image"
)

func main() {
	cache := flag.String("cache", image.CacheDir(os.Getenv, os.Geteuid()), "cache `folder`")
	programs := flag.String("programs", "bin", "`folder` of sallyport-sandboxd, which compiles the image's Python modules")
	force := flag.Bool("force", false, "build even if it is up to date")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *cache, *programs, *force, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "buildimage:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cache, programs string, force bool, names []string) error {
	if len(names) == 0 {
		names = []string{image.DefaultName}
	}
	for _, spec := range image.Recipes() {
		if !slices.Contains(names, spec.Name) || !force && image.NewStore(cache).UpToDate(spec) {
			continue
		}
		if err := build(ctx, cache, programs, spec); err != nil {
			return err
		}
	}
	return nil
}

func build(ctx context.Context, cache, programs string, spec image.Spec) error {
	img, err := image.Build(ctx, cache, spec, image.InSandbox(programs), func(s string) { fmt.Println("      " + s) })
	if err != nil {
		return err
	}
	fmt.Printf("      %s: %d packages, %d MB, %s\n", img.Name, len(img.Packages), img.Size/1e6, img.Digest)
	return nil
}
