package debian

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A Source is Debian's archive of one release.
type Source struct {
	dir      string // absolute; everything that apt writes is here
	release  string
	progress func(string)
}

// Open reads the package lists of a release (its code name), keeping everything in
// dir. It needs apt-get with a source of that release, and tells progress what it is
// doing, one line at a time.
func Open(ctx context.Context, dir, release string, progress func(string)) (*Source, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Source{dir: dir, release: release, progress: progress}
	for _, d := range []string{"lists/partial", "none/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	// Only Debian's packages of this release, whatever else the machine uses.
	pins := "Package: *\nPin: release o=Debian, n=" + release + "*\nPin-Priority: 900\n\n" +
		"Package: *\nPin: release o=*\nPin-Priority: -1\n"
	for name, text := range map[string]string{"status": "", "preferences": pins} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	progress("reading Debian's package lists")
	_, err = s.command(ctx, "none", "update")
	return s, err
}

// command runs apt-get with our state; archives is "none" or "archives".
func (s *Source) command(ctx context.Context, archives string, args ...string) ([]byte, error) {
	at := func(name string) string { return filepath.Join(s.dir, name) }
	all := []string{
		"-qq",
		"-o", "Dir::State=" + s.dir,
		"-o", "Dir::State::lists=" + at("lists"),
		"-o", "Dir::State::status=" + at("status"),
		"-o", "Dir::State::extended_states=" + at("extended_states"),
		"-o", "Dir::Cache=" + s.dir,
		"-o", "Dir::Cache::archives=" + at(archives),
		"-o", "Dir::Etc::preferences=" + at("preferences"),
		"-o", "Dir::Etc::preferencesparts=/dev/null",
		"-o", "APT::Architecture=" + runtime.GOARCH,
		"-o", "APT::Architectures=" + runtime.GOARCH,
		"-o", "APT::Install-Recommends=false",
		"-o", "APT::Install-Suggests=false",
		"-o", "APT::Get::AllowUnauthenticated=false",
		"-o", "APT::Sandbox::User=", // the folder is ours, and no other user may enter it
		"-o", "Acquire::ForceHash=SHA256",
		"-o", "Acquire::Languages=none",
		"-o", "Acquire::Retries=3",
	}
	cmd := exec.CommandContext(ctx, "apt-get", append(all, args...)...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	cmd.Dir = at(archives) // where "download" puts archives
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// Closure returns what apt would install on an empty machine to have the packages.
// Nothing is downloaded.
func (s *Source) Closure(ctx context.Context, packages []string) ([]Archive, error) {
	out, err := s.command(ctx, "none", append([]string{"--print-uris", "install"}, packages...)...)
	if err != nil {
		return nil, err
	}
	return parseURIs(bytes.NewReader(out), filepath.Join(s.dir, "archives"))
}

// Fetch downloads the closure of the packages. Whoever uses one of the archives
// checks it first.
func (s *Source) Fetch(ctx context.Context, packages []string) ([]Archive, error) {
	all, err := s.Closure(ctx, packages)
	if err != nil {
		return nil, err
	}
	return all, s.download(ctx, all, append([]string{"--download-only", "install"}, packages...)...)
}

// FetchOne downloads one archive of a closure, and checks it.
func (s *Source) FetchOne(ctx context.Context, a Archive) error {
	if err := s.download(ctx, []Archive{a}, "download", a.Name+"="+a.Version); err != nil {
		return err
	}
	return a.Check()
}

var uriLine = regexp.MustCompile(`^'[^']*' (([a-z0-9][a-z0-9+.-]+)_([A-Za-z0-9.+~%-]+)_([a-z0-9-]+)\.deb) ([0-9]+) SHA256:([0-9a-f]{64})$`)

// parseURIs reads apt-get's --print-uris: 'URI' FILE SIZE SHA256:HEX, a line
// for each archive.
func parseURIs(r io.Reader, dir string) ([]Archive, error) {
	var out []Archive
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		m := uriLine.FindStringSubmatch(strings.TrimSpace(lines.Text()))
		if m == nil {
			return nil, fmt.Errorf("apt-get printed %.200q, which is not an archive with a SHA256", lines.Text())
		}
		version, err := url.PathUnescape(m[3])
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseInt(m[5], 10, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, Archive{
			Package: Package{Name: m[2], Version: version, Architecture: m[4], SHA256: m[6]},
			File:    filepath.Join(dir, m[1]),
			Size:    size,
		})
	}
	return out, lines.Err()
}

// download has apt-get fetch archives, and reports how far it is.
func (s *Source) download(ctx context.Context, archives []Archive, args ...string) error {
	var total int64
	for _, a := range archives {
		total += a.Size
	}
	s.progress(fmt.Sprintf("downloading %d packages, %d MB", len(archives), total/1e6))
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(3 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				s.progress(fmt.Sprintf("downloaded %d of %d MB", s.downloaded()/1e6, total/1e6))
			}
		}
	}()
	_, err := s.command(ctx, "archives", args...)
	close(done)
	<-stopped
	return err
}

// downloaded counts the bytes that are there; it may miss a file that moves.
func (s *Source) downloaded() (n int64) {
	for _, pattern := range []string{"archives/*.deb", "archives/partial/*.deb"} {
		files, _ := filepath.Glob(filepath.Join(s.dir, pattern)) // the pattern is well formed
		for _, f := range files {
			if info, err := os.Stat(f); err == nil {
				n += info.Size()
			}
		}
	}
	return n
}
