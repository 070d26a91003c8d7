// Buildimage builds the default sandbox image into the cache folder, if an image
// of this recipe is not there yet. `make build` calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sallyport.dev/sallyport/image"
)

func main() {
	cache := flag.String("cache", image.CacheDir(os.Getenv, os.Geteuid()), "cache `folder`")
	force := flag.Bool("force", false, "build even if it is up to date")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *cache, *force); err != nil {
		fmt.Fprintln(os.Stderr, "buildimage:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cache string, force bool) error {
	spec := image.Default()
	if !force && image.NewStore(cache).UpToDate(spec) {
		return nil
	}
	img, err := image.Build(ctx, cache, spec, func(s string) { fmt.Println("      " + s) })
	if err != nil {
		return err
	}
	fmt.Printf("      %s: %d packages, %d MB, %s\n", img.Name, len(img.Packages), img.Size/1e6, img.Digest)
	return nil
}
