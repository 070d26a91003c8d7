package suite

import (
	"os"
	"strings"
	"testing"
)

// envReport names a file that gets one line for each result, for `make conformance`.
const envReport = "SALLYPORT_CONFORMANCE_REPORT"

// Judge fails the test for each scored scenario that is not all right, and tells
// the counts. expected are the scenarios, or SCENARIO:CHECK, that are known to
// fail, with their public reasons; one that does not fail is an error, too.
func (r Result) Judge(t testing.TB, expected map[string]string) {
	t.Helper()
	known := map[string]bool{}
	for _, s := range r.Scenarios {
		s.judge(t, expected, known)
	}
	for what := range expected {
		if !known[what] {
			t.Errorf("%s, %s: %s is expected to fail and does not: take it out", r.Revision, r.Leg, what)
		}
	}
	if t.Failed() {
		t.Logf("the suite printed:\n%s", r.Output)
	}
	t.Log(r)
	r.report(t)
}

func (s Scenario) judge(t testing.TB, expected map[string]string, known map[string]bool) {
	t.Helper()
	tell := t.Errorf
	if !s.Scored {
		tell = t.Logf
	}
	if expected[s.Name] != "" {
		known[s.Name] = !s.OK()
		return
	}
	for _, c := range s.with("WARNING") {
		t.Logf("%s: a warning: %s: %s (%s)", s.Name, c.ID, c.ErrorMessage, c.Description)
	}
	for _, c := range s.Failed() {
		if what := s.Name + ":" + c.ID; expected[what] != "" {
			known[what] = true
			continue
		}
		tell("%s: %s: %s (%s)\n%.2000s", s.Name, c.ID, c.ErrorMessage, c.Description, c.Details)
	}
	if len(s.Failed()) == 0 && s.passed() == 0 {
		tell("%s: nothing was checked", s.Name)
	}
}

func (r Result) report(t testing.TB) {
	t.Helper()
	path := os.Getenv(envReport)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // the report is for everybody
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(strings.TrimSpace(r.String()) + "\n")
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Error(err)
	}
}
