// Package age tells how far what sandboxes stand on is behind the releases that
// were known when this was built.
package age

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

//go:embed releases.txt
var text string

// A Release is one line of releases.txt.
type Release struct {
	component, version string
	at                 time.Time // zero if it is not known
}

// Known are the releases that this build knows of.
func Known() ([]Release, error) { return parse(text) }

func parse(text string) (all []Release, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) < 4 {
			return nil, fmt.Errorf("releases.txt: %q has no source", line)
		}
		r := Release{component: f[0], version: f[1]}
		if f[2] != "-" {
			if r.at, err = time.Parse(time.DateOnly, f[2]); err != nil {
				return nil, fmt.Errorf("releases.txt: %w", err)
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// stale is after how many days behind doctor asks for an update.
const stale = 90

// Gvisor tells how far the gVisor of this build is behind.
func Gvisor(version string, known []Release) (said, hint string) {
	parts := strings.Split(version, "-")
	stamp := parts[max(0, len(parts)-2)]
	at, bad := time.Parse("20060102", stamp[:min(8, len(stamp))])
	for _, r := range known {
		if r.component != "gvisor" || bad != nil {
			continue
		}
		days := max(0, int(r.at.Sub(at).Hours()/24))
		said = fmt.Sprintf("gVisor of %s, %d days behind the newest release known when this was built (%s)", at.Format(time.DateOnly), days, r.at.Format(time.DateOnly))
		if days > stale {
			return said, "update Sallyport: its gVisor has what was mended since"
		}
		return said, ""
	}
	return "gVisor of an unknown version: " + version, ""
}

// Kernel tells how far a host's kernel is behind its own series. What no series is
// known of is said, not guessed.
func Kernel(running string, known []Release) (said, hint string) {
	return against("linux", "Linux "+running, running, known, "update the kernel: sandboxes stand on it")
}

// against holds a version of a component, named as people are told it, against the
// newest of its series.
func against(component, name, version string, known []Release, update string) (said, hint string) {
	version, _, _ = strings.Cut(version, "-")
	for _, r := range known {
		if r.component != component || series(r.version) != series(version) {
			continue
		}
		newest := r.String()
		if patch(version) >= patch(r.version) {
			return fmt.Sprintf("%s, not behind %s, the newest of its series known when this was built", name, newest), ""
		}
		return fmt.Sprintf("%s, %d releases behind %s", name, patch(r.version)-patch(version), newest), update
	}
	return name + ": no release of this series was known when this was built", ""
}

func (r Release) String() string {
	if r.at.IsZero() {
		return r.version
	}
	return r.version + " of " + r.at.Format(time.DateOnly)
}

func series(version string) string {
	p := strings.SplitN(version, ".", 3)
	return strings.Join(p[:min(2, len(p))], ".")
}

func patch(version string) int {
	p := strings.SplitN(version, ".", 3)
	if len(p) < 3 {
		return 0
	}
	n, _ := strconv.Atoi(p[2])
	return n
}

// KernelOf reads the release of a kernel from /proc/version: Debian's names
// it there, and a name of its own elsewhere.
func KernelOf(procVersion string) string {
	if _, after, ok := strings.Cut(procVersion, " Debian "); ok {
		version, _, _ := strings.Cut(after, " ")
		return version
	}
	if f := strings.Fields(procVersion); len(f) > 2 {
		return f[2]
	}
	return "unknown"
}
