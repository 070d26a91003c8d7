package risk_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"sallyport.dev/sallyport/risk"
)

// cacheDir holds the compiled parser for all tests of this process.
var cacheDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sallyport-risk")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cacheDir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func sharedCache(testing.TB) string { return cacheDir }

// One Engine judges for everybody at once.
func TestConcurrentUse(t *testing.T) {
	e, err := risk.New(risk.Options{CacheDir: cacheDir, Internal: []string{"example.com"}}) // not warm: they race for the start, too
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for kind, judge := range analysers(e) {
				for i, c := range corpus(t, kind) {
					if i%3 == 0 {
						if got := verdict(judge(c.text)); got != c.verdict {
							t.Errorf("%s.txt:%d: %s, want %s", kind, c.line, got, c.verdict)
						}
					}
				}
			}
		})
	}
	all.Wait()
}
