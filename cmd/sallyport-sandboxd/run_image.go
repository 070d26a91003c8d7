package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/hashed"
	"sallyport.dev/sallyport/tier"
)

// runImageWord: `sallyport-sandboxd run-image FILE PROGRAM ARGV…` runs a program
// of an image that is being built, in a sandbox that reaches nothing, and prints
// what it prints. (image.InSandbox)
const runImageWord = "run-image"

// oneImage is a file.
type oneImage tier.Image

func (i oneImage) Find(string) (tier.Image, error) { return tier.Image(i), nil }

func runImage(file string, argv []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	digest, err := hashed.File(file)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	host, err := gvisor.OpenFree(runDir, gvisor.Config{Programs: filepath.Dir(self), Images: oneImage{Digest: digest, Path: file}})
	if err != nil {
		return err
	}
	defer host.Close()
	l := sallyport.DefaultLimits()
	l.Timeout, l.Memory, l.Output, l.CPUs = 15*time.Minute, 2<<30, 512<<20, float64(runtime.NumCPU())
	res, err := host.Run(ctx, tier.Request{Image: digest, Argv: argv, Limits: l, CallID: runImageWord})
	if err != nil {
		return err
	}
	if res.ExitCode != 0 || res.Truncated || res.KilledBy != "" {
		return fmt.Errorf("%s ended with %d %s: %.2000s", argv[0], res.ExitCode, res.KilledBy, res.Stderr)
	}
	_, err = os.Stdout.Write(res.Stdout)
	return err
}
