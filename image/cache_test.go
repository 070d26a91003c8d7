package image_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image"
)

func free(image.Listed) string { return "" }

func quiet(string) {}

// oneFile builds an image that differs by its text.
func oneFile(t testing.TB, cache, name, text string) image.Image {
	t.Helper()
	l := layersOf(t, tarOf(t, file("a", text, 0o644)))
	l.Name = name
	img, err := buildLayers(t, cache, l)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// cached is what is in a cache folder, by name, or "-" and the digest.
func cached(t testing.TB, cache string) string {
	t.Helper()
	list, err := image.List(cache)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range list {
		if l.Problem != "" {
			t.Errorf("%s %s: %s", l.Name, l.Digest, l.Problem)
		}
		out = append(out, strings.TrimPrefix(l.Name+"="+l.Digest[7:11], "="))
	}
	return strings.Join(out, " ")
}

// Only what nothing names, holds or uses is removed.
func TestPrune(t *testing.T) {
	cache := t.TempDir()
	store := image.NewStore(cache)
	short := func(i image.Image) string { return i.Digest[7:11] }
	old := oneFile(t, cache, "one", "old")
	now := oneFile(t, cache, "one", "new")
	two := oneFile(t, cache, "two", "two")
	three := oneFile(t, cache, "three", "three")
	oneFile(t, cache, "again", "three") // a second name
	prune := func(all bool, kept image.Kept) {
		t.Helper()
		if _, err := store.Prune(context.Background(), all, kept, quiet); err != nil {
			t.Fatal(err)
		}
	}
	user := image.NewStore(cache) // as a sandbox host would
	if _, err := user.Use(old.Digest); err != nil {
		t.Fatal(err)
	}
	prune(false, free)
	all := "again=" + short(three) + " one=" + short(now) + " three=" + short(three) + " two=" + short(two)
	if got := cached(t, cache); got != all+" "+short(old) {
		t.Errorf("an image in use was pruned: %s", got)
	}
	list, err := store.List()
	if err != nil || !list[4].InUse || list[4].LastUsed.IsZero() || list[0].InUse || !list[0].LastUsed.IsZero() {
		t.Errorf("List says %+v, %v", list, err)
	}
	user.Close()
	prune(false, func(l image.Listed) string { return map[string]string{old.Digest: "named by its digest"}[l.Digest] })
	if got := cached(t, cache); got != all+" "+short(old) {
		t.Errorf("an image that is kept was pruned: %s", got)
	}
	prune(false, free)
	if got := cached(t, cache); got != all {
		t.Errorf("after prune: %s, want %s", got, all)
	}
	prune(true, func(l image.Listed) string { return map[string]string{"again": "a manifest names it"}[l.Name] })
	if got := cached(t, cache); got != "again="+short(three)+" three="+short(three) {
		t.Errorf("after prune --all: %s", got)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "images", "*"+short(two)+"*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRemove(t *testing.T) {
	cache := t.TempDir()
	store := image.NewStore(cache)
	rm := func(ref string, kept image.Kept) error {
		return store.Remove(context.Background(), ref, kept, quiet)
	}
	one := oneFile(t, cache, "one", "1")
	oneFile(t, cache, "two", "1")
	for _, ref := range []string{"three", "../one", "", "sha256-" + strings.Repeat("0", 64)} {
		if err := rm(ref, free); sallyport.CodeOf(err) != sallyport.NotFound {
			t.Errorf("rm %q: %v", ref, err)
		}
	}
	if err := rm("one", func(image.Listed) string { return "sallyport.yaml names it" }); sallyport.CodeOf(err) != sallyport.Conflict || !strings.Contains(err.Error(), "sallyport.yaml") {
		t.Errorf("an image that a configuration names: %v", err)
	}
	user := image.NewStore(cache)
	if _, err := user.Use("one"); err != nil {
		t.Fatal(err)
	}
	if err := rm(one.Digest, free); sallyport.CodeOf(err) != sallyport.Conflict || !strings.Contains(err.Error(), "in use") {
		t.Errorf("an image in use: %v", err)
	}
	if err := rm("two", free); err != nil {
		t.Errorf("one of two names: %v", err)
	}
	if got := cached(t, cache); got != "one="+one.Digest[7:11] {
		t.Errorf("after the removal of a name: %s", got)
	}
	user.Close()
	if err := rm("one", free); err != nil {
		t.Error(err)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "images", "[^.]*"))
	if len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := user.Use("one"); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("Use of a removed image: %v", err)
	}
}

// What is damaged is shown, and can be removed.
func TestDamagedCache(t *testing.T) {
	cache := t.TempDir()
	store := image.NewStore(cache)
	img := oneFile(t, cache, "one", "1")
	dir := filepath.Join(cache, "images")
	zeros := "sha256-" + strings.Repeat("0", 64)
	for name, text := range map[string]string{"bad.json": "{", zeros + ".erofs": "x", img.Digest + ".json": "{"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := store.List()
	if err != nil || len(list) != 3 || list[0].Problem == "" || list[1].Problem == "" || list[2].Problem == "" {
		t.Fatalf("List = %+v, %v", list, err)
	}
	if _, err := store.Prune(context.Background(), false, free, quiet); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"bad", "one"} {
		if err := store.Remove(context.Background(), ref, free, quiet); err != nil {
			t.Errorf("rm %s: %v", ref, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "[^.]*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Builds, uses and prunes beside each other never break an image that somebody
// has, and end with nothing half-done.
func TestCacheConcurrency(t *testing.T) {
	cache := t.TempDir()
	keep := oneFile(t, cache, "keep", "keep")
	user := image.NewStore(cache)
	if _, err := user.Use("keep"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 5 {
				oneFile(t, cache, "moving", strings.Repeat("x", 1+(n*5+i)%7))
				if img, err := image.NewStore(cache).Use("moving"); err == nil {
					if _, err := os.Stat(img.Path); err != nil {
						t.Errorf("Use gave an image that is gone: %v", err)
					}
				} else if c := sallyport.CodeOf(err); c != sallyport.NotFound && c != sallyport.Unavailable {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 10 {
				if _, err := image.NewStore(cache).Prune(context.Background(), n%2 == 0, free, quiet); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if img, err := user.Use("keep"); err == nil { // its name was taken by --all, perhaps
		_ = img
	}
	if _, err := user.Use(keep.Digest); err != nil {
		t.Errorf("the image in use: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "images", ".build-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A build that is interrupted leaves nothing, and one that is killed nothing
// after the next.
func TestInterruptedBuild(t *testing.T) {
	if cache := os.Getenv("SALLYPORT_TEST_STUCK_BUILD"); cache != "" {
		l := image.Layers{Name: "stuck", ID: "stuck", Count: 1, Open: func(context.Context, int) (io.ReadCloser, error) {
			os.Stdout.WriteString("stuck\n")
			time.Sleep(time.Hour)
			return nil, nil
		}}
		_, _ = image.NewStore(cache).BuildLayers(context.Background(), l, quiet)
		return
	}
	cache := t.TempDir()
	dir := filepath.Join(cache, "images")
	ctx, cancel := context.WithCancel(context.Background())
	l := image.Layers{Name: "x", ID: "x", Count: 1, Open: func(context.Context, int) (io.ReadCloser, error) {
		cancel()
		return io.NopCloser(&bomb{headOf(t, 1<<30), 1 << 30}), nil
	}}
	if _, err := image.NewStore(cache).BuildLayers(ctx, l, quiet); sallyport.CodeOf(err) != sallyport.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".build-*")); len(left) != 0 {
		t.Errorf("an interrupted build left %v", left)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestInterruptedBuild$")
	cmd.Env = append(os.Environ(), "SALLYPORT_TEST_STUCK_BUILD="+cache)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	waiting, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	if err := image.NewStore(cache).Remove(waiting, "x", free, quiet); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a removal did not wait for the build: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".build-*")); len(left) != 1 {
		t.Fatalf("control: a killed build left %v", left)
	}
	_ = cmd.Wait()
	oneFile(t, cache, "next", "1")
	if left, _ := filepath.Glob(filepath.Join(dir, ".build-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
