package gvisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/realtest"
	"sallyport.dev/sallyport/tier/rundir"
)

func TestProbe(t *testing.T) {
	h := gvisortest.Open(t)
	platform, err := h.Probe(t.Context(), "default")
	if err != nil || (platform != "systrap" && platform != "ptrace") {
		t.Fatalf("%q, %v", platform, err)
	}
	if _, err := h.Probe(t.Context(), "no-such-image"); sallyport.CodeOf(err) != sallyport.Unavailable || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("an image that is not there: %v", err)
	}
}

type oneImage tier.Image

func (i oneImage) Find(string) (tier.Image, error) { return tier.Image(i), nil }

// An image is checked when it is used, and again when it was replaced.
func TestDamagedImage(t *testing.T) {
	good, err := realtest.Images(t).Find("default")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(good.Path)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image")
	write := func() {
		if err := os.WriteFile(path+".new", content, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write()
	h, err := gvisor.Open(gvisor.Config{Programs: realtest.Programs(t), Dir: filepath.Join(t.TempDir(), "run"), Images: oneImage{good.Digest, path}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if res := run(t, h, sh("echo ok")); string(res.Stdout) != "ok\n" {
		t.Fatalf("control: %+v", res)
	}
	content[len(content)/2] ^= 1
	write()
	if _, err := h.Run(t.Context(), fill(sh("echo ok"))); sallyport.CodeOf(err) != sallyport.Unavailable || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("a replaced image: %v", err)
	}
}

// Two hosts never share a folder; OpenFree gives each its own.
func TestOneHostPerFolder(t *testing.T) {
	cfg := gvisor.Config{Programs: realtest.Programs(t), Images: realtest.Images(t)}
	base := filepath.Join(t.TempDir(), "run")
	a, err := gvisor.OpenFree(base, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := gvisor.OpenFree(base, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, h := range []*gvisor.Host{a, b} {
		if res := run(t, h, sh("echo ok")); string(res.Stdout) != "ok\n" {
			t.Errorf("%+v", res)
		}
	}
	cfg.Dir = filepath.Join(base, "0")
	if _, err := gvisor.Open(cfg); !errors.Is(err, rundir.ErrInUse) {
		t.Errorf("a second host in one folder: %v", err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Dir = open
	if _, err := gvisor.Open(cfg); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("a folder that others can read: %v", err)
	}
	cfg.Dir = "relative"
	if _, err := gvisor.Open(cfg); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("a relative folder: %v", err)
	}
}
