package image

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// An apt asks Debian's own client, as if no package at all were installed here,
// and keeps everything it writes in a folder of its own. The machine's sources
// and signing keys are used; its preferences and its package state are not.
type apt struct {
	dir     string // absolute
	release string
}

// An archive is one .deb file that apt has chosen.
type archive struct {
	pkg  Package
	file string // absolute
	size int64
}

func newApt(dir, release string) (*apt, error) {
	a := &apt{dir: dir, release: release}
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
	return a, nil
}

// command runs apt-get with our state; archives is "none" or "archives".
func (a *apt) command(ctx context.Context, archives string, args ...string) ([]byte, error) {
	at := func(name string) string { return filepath.Join(a.dir, name) }
	all := []string{
		"-qq",
		"-o", "Dir::State=" + a.dir,
		"-o", "Dir::State::lists=" + at("lists"),
		"-o", "Dir::State::status=" + at("status"),
		"-o", "Dir::State::extended_states=" + at("extended_states"),
		"-o", "Dir::Cache=" + a.dir,
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
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// resolve returns what apt would install on an empty machine.
func (a *apt) resolve(ctx context.Context, packages []string) ([]archive, error) {
	out, err := a.command(ctx, "none", append([]string{"--print-uris", "install"}, packages...)...)
	if err != nil {
		return nil, err
	}
	return parseURIs(bytes.NewReader(out), filepath.Join(a.dir, "archives"))
}

var uriLine = regexp.MustCompile(`^'[^']*' (([a-z0-9][a-z0-9+.-]+)_([A-Za-z0-9.+~%-]+)_([a-z0-9-]+)\.deb) ([0-9]+) SHA256:([0-9a-f]{64})$`)

// parseURIs reads apt-get's --print-uris: 'URI' FILE SIZE SHA256:HEX, a line
// for each archive.
func parseURIs(r io.Reader, dir string) ([]archive, error) {
	var out []archive
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
		out = append(out, archive{
			pkg:  Package{Name: m[2], Version: version, Architecture: m[4], SHA256: m[6]},
			file: filepath.Join(dir, m[1]),
			size: size,
		})
	}
	return out, lines.Err()
}

// download fetches the archives and reports how far it is.
func (a *apt) download(ctx context.Context, packages []string, total int64, progress func(string)) error {
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
				progress(fmt.Sprintf("downloaded %d of %d MB", a.downloaded()/1e6, total/1e6))
			}
		}
	}()
	_, err := a.command(ctx, "archives", append([]string{"--download-only", "install"}, packages...)...)
	close(done)
	<-stopped
	return err
}

// downloaded counts the bytes that are there; it may miss a file that moves.
func (a *apt) downloaded() (n int64) {
	for _, pattern := range []string{"archives/*.deb", "archives/partial/*.deb"} {
		files, _ := filepath.Glob(filepath.Join(a.dir, pattern)) // the pattern is well formed
		for _, f := range files {
			if info, err := os.Stat(f); err == nil {
				n += info.Size()
			}
		}
	}
	return n
}

// check compares a file with the hash that apt's signed lists give.
func (a archive) check() error {
	got, err := hashFile(a.file)
	if err != nil {
		return err
	}
	if got != a.pkg.SHA256 {
		return fmt.Errorf("%s: sha256 is %s, but the signed package list says %s", filepath.Base(a.file), got, a.pkg.SHA256)
	}
	return nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
