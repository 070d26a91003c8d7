package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
)

// An event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// A report turns events into lines for a person, and counts.
type report struct {
	out                     io.Writer
	packages                map[string]*pkg
	builds                  map[string]string // output, by import path
	passed, failed, skipped int
	failures                []failure
}

// A failure is shown again at the end, where a long run is read first.
type failure struct{ name, output string }

type pkg struct {
	tests  map[string]*result
	output strings.Builder // of the package itself
}

type result struct {
	action string // "run" until it ends
	parent bool   // it has subtests
	output strings.Builder
}

func newReport(out io.Writer) *report {
	return &report{out: out, packages: map[string]*pkg{}, builds: map[string]string{}}
}

// line takes one line of JSON. What is not JSON is shown as it is.
func (r *report) line(b []byte) {
	if len(b) == 0 {
		return
	}
	var e event
	if b[0] != '{' || json.Unmarshal(b, &e) != nil {
		fmt.Fprintf(r.out, "%s", b)
		return
	}
	if e.Action == "build-output" {
		r.builds[e.ImportPath] += e.Output
		return
	}
	if e.Package == "" {
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{tests: map[string]*result{}}
		r.packages[e.Package] = p
	}
	if e.Test == "" {
		r.packageEvent(p, e)
	} else {
		p.testEvent(e)
	}
}

func (p *pkg) testEvent(e event) {
	t := p.test(e.Test)
	switch e.Action {
	case "output":
		if !noise(e.Output) {
			t.output.WriteString(e.Output)
		}
	case "pass", "fail", "skip":
		t.action = e.Action
	}
}

func (p *pkg) test(name string) *result {
	t := p.tests[name]
	if t == nil {
		t = &result{action: "run"}
		p.tests[name] = t
		if i := strings.LastIndexByte(name, '/'); i > 0 {
			p.test(name[:i]).parent = true
		}
	}
	return t
}

func noise(s string) bool {
	s = strings.TrimLeft(s, " ")
	for _, prefix := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "--- PASS"} {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

func (r *report) packageEvent(p *pkg, e event) {
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		r.finish(p, e)
		delete(r.packages, e.Package)
	}
}

// finish tells about a package that has ended.
func (r *report) finish(p *pkg, e event) {
	names := make([]string, 0, len(p.tests))
	for name := range p.tests {
		names = append(names, name)
	}
	sort.Strings(names)
	passed, failed, skipped := 0, []string(nil), []string(nil)
	for _, name := range names {
		switch t := p.tests[name]; {
		case t.action == "fail" && !p.childFailed(name), t.action == "run" && !t.parent:
			failed = append(failed, name)
		case t.parent:
		case t.action == "pass":
			passed++
		case t.action == "skip":
			skipped = append(skipped, name)
		}
	}
	r.passed, r.failed, r.skipped = r.passed+passed, r.failed+len(failed), r.skipped+len(skipped)
	if e.Action == "fail" && len(failed) == 0 { // it did not build, or its TestMain failed
		r.failed++
	}
	if e.Action == "fail" {
		fmt.Fprintf(r.out, "FAIL  %s (%.1fs)\n", e.Package, e.Elapsed)
		r.explain(p, e, failed)
	} else if len(names) > 0 {
		fmt.Fprintf(r.out, "ok    %s: %d passed (%.1fs)\n", e.Package, passed, e.Elapsed)
	}
	for _, name := range skipped {
		fmt.Fprintf(r.out, "      skipped %s: %s\n", name, reason(p.tests[name].output.String()))
	}
}

func (p *pkg) childFailed(name string) bool {
	for other, t := range p.tests {
		if t.action == "fail" && strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}

// explain shows the output of failed tests, or else of the package.
func (r *report) explain(p *pkg, e event, failed []string) {
	for _, name := range failed {
		fmt.Fprintf(r.out, "  --- %s\n", name)
		text := p.tests[name].output.String()
		if p.tests[name].action == "run" {
			text += "it did not end: a panic, an exit or the time limit stopped the package\n"
		}
		r.indent(text)
		r.failures = append(r.failures, failure{e.Package + " " + name, text})
	}
	text := r.builds[e.FailedBuild]
	if len(failed) == 0 {
		text += p.output.String()
		r.failures = append(r.failures, failure{e.Package, text})
	}
	r.indent(text)
}

// again shows the last lines of what failed.
func (r *report) again() {
	const last = 20
	for _, f := range r.failures {
		fmt.Fprintf(r.out, "failed: %s\n", f.name)
		lines := slices.Collect(strings.Lines(f.output))
		r.indent(strings.Join(lines[max(0, len(lines)-last):], ""))
	}
}

func (r *report) indent(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(r.out, "      %s\n", strings.TrimRight(line, "\n"))
	}
}

// reason is what a test gave to Skip: "    x_test.go:7: REASON".
func reason(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "--- SKIP") {
			continue
		}
		if _, text, ok := strings.Cut(line, ".go:"); ok {
			if _, after, ok := strings.Cut(text, ": "); ok {
				line = after
			}
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return "no reason given"
	}
	return strings.Join(lines, "; ")
}

// close counts what never ended, prints the last line and returns the exit code.
func (r *report) close(testErr error) int {
	for name, p := range r.packages {
		r.finish(p, event{Action: "fail", Package: name})
	}
	r.again()
	summary := fmt.Sprintf("%d passed, %d failed", r.passed, r.failed)
	if r.skipped > 0 {
		summary += fmt.Sprintf(", %d skipped", r.skipped)
	}
	switch {
	case r.failed == 0 && testErr != nil:
		fmt.Fprintf(r.out, "go test: %v\n", testErr)
	case r.passed == 0 && r.failed == 0:
		fmt.Fprintln(r.out, "no test ran")
	}
	fmt.Fprintln(r.out, summary)
	if r.failed > 0 || r.passed == 0 || testErr != nil {
		return 1
	}
	return 0
}
