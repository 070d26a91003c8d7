package suite

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A trial is a test that is only looked at.
type trial struct {
	testing.TB
	errors []string
}

func (t *trial) Helper()                   {}
func (t *trial) Log(...any)                {}
func (t *trial) Logf(string, ...any)       {}
func (t *trial) Failed() bool              { return len(t.errors) > 0 }
func (t *trial) Errorf(f string, a ...any) { t.errors = append(t.errors, fmt.Sprintf(f, a...)) }

func checks(status ...string) (all []Check) {
	for i, s := range status {
		all = append(all, Check{ID: fmt.Sprint("check", i), Status: s})
	}
	return all
}

// What is scored must have been checked and must not have failed, unless it is
// expected to; and what is expected to fail must.
func TestJudge(t *testing.T) {
	good, bad := checks("SUCCESS", "INFO", "WARNING"), checks("SUCCESS", "FAILURE")
	for name, tt := range map[string]struct {
		scenarios []Scenario
		expected  map[string]string
		want      string // of each error
		counts    string
	}{
		"good":             {[]Scenario{{"a", true, good}}, nil, "", "1 of 1 scored scenarios, 1 of 1 checks"},
		"one check failed": {[]Scenario{{"a", true, bad}}, nil, "a: check1", "0 of 1 scored scenarios, 1 of 2 checks"},
		"not run":          {[]Scenario{{"a", true, nil}}, nil, "a: nothing was checked", "0 of 1 scored"},
		"only remarks":     {[]Scenario{{"a", true, checks("INFO", "SKIPPED")}}, nil, "a: nothing was checked", "0 of 1 scored"},
		"not scored":       {[]Scenario{{"a", false, bad}, {"b", false, good}}, nil, "", "0 of 0 scored scenarios, 0 of 0 checks; 1 of 2 that are not"},
		"expected":         {[]Scenario{{"a", true, bad}}, map[string]string{"a": "why"}, "", "0 of 1"},
		"expected check":   {[]Scenario{{"a", true, bad}}, map[string]string{"a:check1": "why"}, "", "0 of 1"},
		"another check":    {[]Scenario{{"a", true, checks("FAILURE", "FAILURE")}}, map[string]string{"a:check1": "why"}, "a: check0", "0 of 1"},
		"stale":            {[]Scenario{{"a", true, good}}, map[string]string{"a": "why"}, "a is expected to fail and does not", "1 of 1"},
		"stale check":      {[]Scenario{{"a", true, good}}, map[string]string{"a:check1": "why"}, "a:check1 is expected to fail and does not", "1 of 1"},
	} {
		t.Setenv(envReport, filepath.Join(t.TempDir(), "report"))
		r, on := Result{Revision: "r", Leg: "server", Scenarios: tt.scenarios}, &trial{TB: t}
		r.Judge(on, tt.expected)
		if tt.want == "" && len(on.errors) > 0 || tt.want != "" && (len(on.errors) != 1 || !strings.Contains(on.errors[0], tt.want)) {
			t.Errorf("%s: %q, want %q", name, on.errors, tt.want)
		}
		told, err := os.ReadFile(os.Getenv(envReport))
		if err != nil || !strings.HasPrefix(string(told), "r, server: "+tt.counts) {
			t.Errorf("%s: %q, %v", name, told, err)
		}
	}
}

// The control: before a server that is none, what the suite finds is failure.
func TestSuiteSeesFailure(t *testing.T) {
	none := httptest.NewServer(http.NotFoundHandler())
	defer none.Close()
	r := New(t).Server("2025-11-25", none.URL)
	if len(r.Scenarios) < 30 || slices.ContainsFunc(r.Scenarios, Scenario.OK) {
		t.Error(r)
	}
}
