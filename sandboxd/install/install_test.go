package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/install/npx"
)

// A fakeNpm writes what npm would, and then what a test adds.
type fakeNpm struct {
	runs int
	lock string
	more func(tree string) error
	args []string
	env  []string
	said string
}

const goodLock = `{"lockfileVersion":3,"packages":{"":{},"node_modules/@a/srv":{"version":"1.2.3","integrity":"sha512-abc"},"node_modules/dep":{"version":"1.0.0","integrity":"sha512-def"},"node_modules/dep/node_modules/in":{"version":"1.0.0","inBundle":true}}}`

func (f *fakeNpm) run(_ context.Context, _ int, dir string, env, args []string) ([]byte, error) {
	f.runs, f.args, f.env = f.runs+1, args, env
	pkg := filepath.Join(dir, "node_modules", "@a", "srv")
	err := errors.Join(
		os.MkdirAll(filepath.Join(pkg, "dist"), 0o755),
		os.WriteFile(filepath.Join(pkg, "package.json"), []byte(`{"name":"@a/srv","bin":{"srv-run":"./dist/index.js"}}`), 0o644),
		os.WriteFile(filepath.Join(pkg, "dist", "index.js"), []byte("#!/usr/bin/env node\n"), 0o755),
		os.WriteFile(filepath.Join(dir, "package-lock.json"), []byte(f.lock), 0o644),
		os.MkdirAll(filepath.Join(dir, "node_modules", ".bin"), 0o755),
		os.Symlink("../@a/srv/dist/index.js", filepath.Join(dir, "node_modules", ".bin", "srv-run")),
	)
	if err == nil && f.more != nil {
		err = f.more(dir)
	}
	return []byte("npm says" + f.said), err
}

func newStore(t *testing.T) (*Store, *fakeNpm) {
	t.Helper()
	f := &fakeNpm{lock: goodLock}
	return &Store{Dir: t.TempDir(), Run: f.run}, f
}

var command = npx.Command{Spec: "@a/srv@1", Name: "@a/srv", Args: []string{"arg"}}

func TestInstallOnceThenPinned(t *testing.T) {
	s, npm := newStore(t)
	first, have, err := s.Open("srv", os.Getuid(), command)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if have.Version != "1.2.3" || have.Integrity != "sha512-abc" || len(have.Digest) != 64 || len(have.Lock) != 64 || have.Packages != 3 {
		t.Errorf("%+v", have)
	}
	if !slices.Contains(npm.args, "--ignore-scripts") || npm.args[len(npm.args)-1] != command.Spec {
		t.Errorf("%q", npm.args)
	}
	argv, err := have.Program("/pkg", command)
	if err != nil || !slices.Equal(argv, []string{"/pkg/node_modules/@a/srv/dist/index.js", "arg"}) {
		t.Errorf("%q %v", argv, err)
	}
	img, err := erofs.Open(first)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := img.Open("node_modules/@a/srv/dist/index.js"); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	again, same, err := s.Open("srv", os.Getuid(), command)
	if err != nil || npm.runs != 1 || same.Digest != have.Digest {
		t.Errorf("%d runs, %v", npm.runs, err)
	}
	again.Close()
	other := command
	other.Spec = "@a/srv@2"
	if f, _, err := s.Open("srv", os.Getuid(), other); err != nil || npm.runs != 2 {
		t.Errorf("another version is not installed: %d runs, %v", npm.runs, err)
	} else {
		f.Close()
	}
}

// What changed after the installation is refused, until it is installed afresh.
func TestChangedPackageIsRefused(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"one byte": func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, imageName), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte{0xff}, 8192)
			return err
		},
		"gone":           func(dir string) error { return os.Remove(filepath.Join(dir, imageName)) },
		"record damaged": func(dir string) error { return os.WriteFile(filepath.Join(dir, recordName), []byte("{"), 0o600) },
		"record emptied": func(dir string) error { return os.WriteFile(filepath.Join(dir, recordName), []byte("{}"), 0o600) },
	} {
		s, npm := newStore(t)
		f, _, err := s.Open("srv", os.Getuid(), command)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := change(filepath.Join(s.Dir, "srv")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Open("srv", os.Getuid(), command); err == nil || !strings.Contains(err.Error(), "cannot be used") || npm.runs != 1 {
			t.Errorf("%s: %v, %d runs", name, err, npm.runs)
		}
		if _, err := s.Install("srv", os.Getuid(), command); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if f, _, err := s.Open("srv", os.Getuid(), command); err != nil {
			t.Errorf("%s, afresh: %v", name, err)
		} else {
			f.Close()
		}
	}
}

func TestInstallRefuses(t *testing.T) {
	for name, change := range map[string]func(f *fakeNpm){
		"no integrity": func(f *fakeNpm) { f.lock = strings.ReplaceAll(goodLock, `,"integrity":"sha512-def"`, "") },
		"a link":       func(f *fakeNpm) { f.lock = strings.ReplaceAll(goodLock, `"integrity":"sha512-def"`, `"link":true`) },
		"another name": func(f *fakeNpm) { f.lock = strings.ReplaceAll(goodLock, "@a/srv", "@b/srv") },
		"no lock":      func(f *fakeNpm) { f.lock = "x" },
		"npm fails":    func(f *fakeNpm) { f.more = func(string) error { return errors.New("exit status 1") } },
		"a way out": func(f *fakeNpm) {
			f.more = func(d string) error { return os.Symlink("/etc/passwd", filepath.Join(d, "node_modules", "x")) }
		},
		"lock is a link": func(f *fakeNpm) {
			f.more = func(d string) error {
				lock := filepath.Join(d, "package-lock.json")
				return errors.Join(os.Remove(lock), os.Symlink("/etc/passwd", lock))
			}
		},
	} {
		s, npm := newStore(t)
		change(npm)
		if _, have, err := s.Open("srv", os.Getuid(), command); err == nil {
			t.Errorf("%s: %+v", name, have)
		}
		if left, _ := os.ReadDir(s.Dir); len(left) != 0 {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

// A name that the registry does not know is told from a registry that is away.
func TestMisspeltPackage(t *testing.T) {
	for said, want := range map[string]string{"": "reaches its registry", "npm error code E404": "name and version are right"} {
		s, npm := newStore(t)
		npm.said, npm.more = said, func(string) error { return errors.New("exit status 1") }
		_, _, err := s.Open("srv", os.Getuid(), command)
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Code != sallyport.Unavailable || !strings.Contains(e.Hint, want) {
			t.Errorf("%q: %v", said, err)
		}
	}
}

// An installation that was killed leaves nothing for long.
func TestCleanRemovesUnfinishedInstallations(t *testing.T) {
	s, _ := newStore(t)
	f, _, err := s.Open("srv", os.Getuid(), command)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, dir := range []string{"srv.new/home", "other.new", "srv.old"} {
		if err := os.MkdirAll(filepath.Join(s.Dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Clean(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(s.Dir); err != nil || len(left) != 1 || left[0].Name() != "srv" {
		t.Errorf("%v %v", left, err)
	}
}

func TestEnvironmentOfNpm(t *testing.T) {
	home := t.TempDir()
	rc := filepath.Join(home, "operators")
	if err := os.WriteFile(rc, []byte("loglevel=silent\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env, err := environment(home, os.Getuid(), []string{
		"npm_config_userconfig=" + rc, "npm_config_fetch_timeout=7", "NPM_CONFIG_IGNORE_SCRIPTS=false", "npm_config_cache=/operators", "HTTPS_PROXY=p", "AWS_SECRET=s", "PATH=/p", "HOME=/operators",
	})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(env, "\n")
	for _, want := range []string{"npm_config_fetch_timeout=7", "HTTPS_PROXY=p", "PATH=/p", "HOME=" + home} {
		if !slices.Contains(env, want) {
			t.Errorf("%q is not in %q", want, env)
		}
	}
	for _, not := range []string{"AWS_SECRET", "operators", "IGNORE_SCRIPTS"} {
		if strings.Contains(all, not) {
			t.Errorf("%q is in %q", not, env)
		}
	}
	if b, err := os.ReadFile(filepath.Join(home, ".npmrc")); err != nil || string(b) != "loglevel=silent\n" {
		t.Errorf("%q %v", b, err)
	}
}
