// Package suite runs the conformance suite of the Model Context Protocol
// (npm's @modelcontextprotocol/conformance) and reads what it found: against the
// gateway's server face through Forward, and against its client face, where the
// suite is the server and a Cast plays the client.
package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"sallyport.dev/sallyport/test/npm"
)

// Revisions are those that the suite has a frozen set of requirements for.
var Revisions = []string{"2025-11-25", "2026-07-28"}

// A Check is one thing that the suite looked at.
type Check struct {
	ID, Name, Description, Status, ErrorMessage string
	Details                                     json.RawMessage
}

// A Scenario is what one scenario found. One that never ran to its end has no
// checks.
type Scenario struct {
	Name   string
	Scored bool // whether the set of requirements counts it
	Checks []Check
}

// Failed are the checks that failed.
func (s Scenario) Failed() []Check { return s.with("FAILURE") }

func (s Scenario) with(status string) (found []Check) {
	for _, c := range s.Checks {
		if c.Status == status {
			found = append(found, c)
		}
	}
	return found
}

func (s Scenario) passed() int { return len(s.with("SUCCESS")) }

// OK reports whether something was checked, and nothing failed.
func (s Scenario) OK() bool { return s.passed() > 0 && len(s.Failed()) == 0 }

// A Result is a run of one side of a set of requirements.
type Result struct {
	Revision, Leg string // leg: "server" or "client"
	Scenarios     []Scenario
	Output        string // what the suite printed
}

// Only returns the result without the scenarios that keep says no to.
func (r Result) Only(keep func(name string) bool) Result {
	r.Scenarios = slices.DeleteFunc(slices.Clone(r.Scenarios), func(s Scenario) bool { return !keep(s.Name) })
	return r
}

// String counts what is scored.
func (r Result) String() string {
	var ok, all, passed, checks, more int
	for _, s := range r.Scenarios {
		if !s.Scored {
			if s.OK() {
				more++
			}
			continue
		}
		all++
		if s.OK() {
			ok++
		}
		passed += s.passed()
		checks += s.passed() + len(s.Failed())
	}
	return fmt.Sprintf("%s, %s: %d of %d scored scenarios, %d of %d checks; %d of %d that are not scored",
		r.Revision, r.Leg, ok, all, passed, checks, more, len(r.Scenarios)-all)
}

// A Suite is the installed suite.
type Suite struct {
	t       testing.TB
	modules npm.Modules
}

// New finds the suite.
func New(t testing.TB) Suite {
	t.Helper()
	s := Suite{t, npm.Find(t)}
	if _, err := os.Stat(s.program()); err != nil {
		t.Fatalf("%v: run `make npm`", err)
	}
	return s
}

func (s Suite) program() string { return s.modules.Script("conformance") }

// scored are the scenarios that a revision requires, and the others that run
// with them.
func (s Suite) scored(revision, leg string) (scored, more []string) {
	s.t.Helper()
	b, err := os.ReadFile(s.modules.Path("@modelcontextprotocol", "conformance", "requirements", revision+".yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	var set struct {
		Server    []string `yaml:"server"`
		Client    []string `yaml:"client"`
		NotScored []struct {
			Scenario string `yaml:"scenario"`
			Leg      string `yaml:"leg"`
		} `yaml:"not_scored"`
	}
	if err := yaml.Unmarshal(b, &set); err != nil {
		s.t.Fatal(err)
	}
	for _, n := range set.NotScored {
		if n.Leg == leg {
			more = append(more, n.Scenario)
		}
	}
	if leg == "client" {
		return set.Client, more
	}
	return set.Server, more
}

// Server holds the server at url against a revision's requirements.
func (s Suite) Server(revision, url string) Result {
	s.t.Helper()
	return s.run(revision, "server", "--url", url)
}

// maxAgain is how many failed scenarios are played again. On a busy machine one may
// miss the half second that the suite gives it; where more fail, it is not that.
const maxAgain = 3

// run runs one side of a revision's requirements.
func (s Suite) run(revision, leg string, args ...string) Result {
	s.t.Helper()
	found, out := s.exec(leg, append([]string{"--requirements", revision}, args...)...)
	if len(found) == 0 {
		s.t.Fatalf("the suite found nothing:\n%s", out)
	}
	r := Result{Revision: revision, Leg: leg, Output: out}
	scored, more := s.scored(revision, leg)
	var failed []int
	for i, name := range slices.Concat(scored, more) {
		r.Scenarios = append(r.Scenarios, Scenario{name, i < len(scored), found[name]})
		if sc := r.Scenarios[i]; sc.Scored && !sc.OK() {
			failed = append(failed, i)
		}
	}
	if len(failed) > maxAgain {
		return r
	}
	for _, i := range failed {
		sc := &r.Scenarios[i]
		s.t.Logf("%s is played again, for it failed: %+v", sc.Name, sc.Failed())
		found, out := s.exec(leg, append([]string{"--scenario", sc.Name, "--spec-version", revision}, args...)...)
		sc.Checks = found[sc.Name]
		r.Output += out
	}
	return r
}

// exec runs the suite and returns the checks of each scenario, and what was printed.
func (s Suite) exec(leg string, args ...string) (found map[string][]Check, out string) {
	s.t.Helper()
	dir := s.t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	results := filepath.Join(dir, "results")
	cmd := exec.CommandContext(ctx, s.modules.Node, append([]string{s.program(), leg, "-o", results}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	b, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended { // its status tells what the checks tell
		s.t.Fatal(err)
	}
	return s.read(results, leg), string(b)
}

// stamp is the end of the name of a folder of results.
var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// read returns the checks of each scenario.
func (s Suite) read(dir, leg string) map[string][]Check {
	s.t.Helper()
	found := map[string][]Check{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil {
			return err
		}
		name = stamp.ReplaceAllString(name, "")
		if leg == "server" {
			name = strings.TrimPrefix(name, "server-")
		}
		var checks []Check
		if err := json.Unmarshal(b, &checks); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		found[name] = append(found[name], checks...)
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return found
}
