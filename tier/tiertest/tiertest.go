// Package tiertest states what every tier.Tier must do, as tests: it runs hostile
// and harmless code in real sandboxes and looks at the host from outside. A tier's
// own test says how the tier is opened and what it runs, and names the cases.
package tiertest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
)

// A Subject is a tier under test.
type Subject struct {
	Name string // as receipts say it

	// Open opens a fresh host, which the end of the test closes, and says in which
	// folder it keeps what it has on this machine.
	Open func(t testing.TB, c Config) (host tier.Tier, dir string)

	// Modules is the language of the modules that it runs. "" means that it runs
	// programs of the default image.
	Modules string

	// Repeats is how often a fast run is repeated where nobody has time; 10 if 0.
	Repeats int
	// Reaches says that what it runs may have a way out.
	Reaches bool
	// Again says that its processes are used again, for one owner.
	Again bool
	// Names says that each of its sandboxes has a name and a machine's id of its own.
	Names bool
	// Brief says that only some rows of each case are run where nobody has time: all
	// are with `make escape`.
	Brief bool
	// Slow is by how much its programs are slower than the machine's; 1 if 0. More is
	// brief, too.
	Slow int
	// Own is how much memory its runtime may take beside what runs in it, and is
	// counted with it; 64 MiB if 0.
	Own int64
	// Clock is how far the clock inside may be from the host's; a second if 0.
	Clock time.Duration
}

// A Config is what a case asks of a host.
type Config struct {
	Runs, Queue int         // at once, and waiting for a place; 0: as the tier has it
	Warm        int         // sandboxes that wait for a request of their kind
	Broker      tier.Broker // nil: none
}

// soak asks for many more repetitions: `make soak`. whole asks for every row also of
// tiers that are slow: `make escape`.
var (
	soak  = os.Getenv("SALLYPORT_SOAK") != ""
	whole = os.Getenv("SALLYPORT_ESCAPE") != "" || soak
)

// briefly tells whether only some rows of a case are run, because nobody has time.
func (s Subject) briefly() bool { return (s.Brief || s.Slow > 1) && !whole }

// cases are the parts of the suite, by the names under which Run finds them.
var cases = map[string]func(*testing.T, Subject){
	"FO47": oneTake,
	"FO48": manyCreates,
	"FO49": clones,
	"FO50": exactOutput,
	"FO51": howItEnded,
	"FO52": memory,
	"FO53": children,
	"TO55": fullDisk,
	"TO56": deafAndFrozen,
	"TO57": memoryInEveryShape,

	"Stdin":   stdin,
	"Cancel":  cancelled,
	"Kill":    listAndKill,
	"Limits":  limitsByName,
	"Receipt": receipt,
	"Way": func(t *testing.T, s Subject) {
		if s.Reaches {
			wayOut(t, s)
		} else {
			noWayOut(t, s)
		}
	},
	"Traces": nothingIsLeft,
}

// WithoutID are the cases that no report from the field is behind.
func WithoutID() (names []string) {
	for name := range cases {
		if !strings.HasPrefix(name, "FO") && !strings.HasPrefix(name, "TO") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Run runs one case.
func Run(t *testing.T, s Subject, name string) {
	t.Helper()
	c, ok := cases[name]
	if !ok {
		t.Fatalf("the suite has no case %q", name)
	}
	if s.Repeats == 0 {
		s.Repeats = 10
	}
	if s.Own == 0 {
		s.Own = 64 << 20
	}
	if s.Clock == 0 {
		s.Clock = time.Second
	}
	c(t, s)
}

// A deed is something to do in a sandbox, in the languages that tiers run. Where
// the tier's is missing, the deed is none of its kind.
type deed struct {
	sh, py string   // a program of the default image: bash or Python
	argv   []string // or any
	js     string   // a module of JavaScript
	wasi   []string // arguments of the module in package wasi

	stdin  []byte
	files  []tier.File
	env    []string
	limits sallyport.Limits // over the default ones
}

// request makes a request of a deed, and tells whether the tier has one.
func (s Subject) request(t testing.TB, d deed) (tier.Request, bool) {
	t.Helper()
	r := tier.Request{Stdin: d.stdin, Files: d.files, Env: d.env, Limits: s.over(d.limits)}
	switch {
	case s.Modules == "javascript" && d.js != "":
		r.Argv, r.Module = []string{"main.js"}, &tier.Module{Language: s.Modules, Code: []byte(d.js)}
	case s.Modules == "wasm" && d.wasi != nil:
		r.Argv, r.Module = append([]string{"main.wasm"}, d.wasi...), &tier.Module{Language: s.Modules, Code: Module(t)}
	case s.Modules != "":
		return r, false
	case d.sh != "":
		r.Image, r.Argv = "default", []string{"bash", "-c", d.sh}
	case d.py != "":
		r.Image, r.Argv = "default", []string{"python3", "-c", d.py}
	case d.argv != nil:
		r.Image, r.Argv = "default", d.argv
	default:
		return r, false
	}
	return r, true
}

// over fills what a case leaves open with what a call has by default, but for time:
// what is to end by itself may take as long as it does on a loaded machine.
func (s Subject) over(l sallyport.Limits) sallyport.Limits {
	d := sallyport.DefaultLimits()
	return sallyport.Limits{
		Timeout: or(l.Timeout, patience) * time.Duration(or(s.Slow, 1)), Memory: or(l.Memory, d.Memory), Processes: or(l.Processes, d.Processes),
		Disk: or(l.Disk, d.Disk), Output: or(l.Output, d.Output), CPUs: or(l.CPUs, d.CPUs),
	}
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// needs makes a request of a deed that every tier has.
func (s Subject) needs(t testing.TB, d deed) tier.Request {
	t.Helper()
	r, ok := s.request(t, d)
	if !ok {
		t.Fatalf("the suite has no such deed in the language of %s: %+v", s.Name, d)
	}
	return r
}

func run(t testing.TB, h tier.Tier, r tier.Request) tier.Result {
	t.Helper()
	res, err := h.Run(context.Background(), r)
	if err != nil {
		t.Fatalf("%.200q: %v", r.Argv, err)
	}
	return res
}

// say prints a line.
func say(line string) deed {
	return deed{argv: []string{"echo", line}, js: "console.log(" + quoted(line) + ")", wasi: []string{"say", line}}
}

// hang prints a line and then does nothing for an hour.
func hang(line string) deed {
	return deed{
		sh: "echo '" + line + "'; exec sleep 3600", wasi: []string{"hang", line},
		js: "console.log(" + quoted(line) + "); await new Promise((done) => setTimeout(done, 3600e3))",
	}
}

// patience is how long things may take at the most: far beyond what a loaded machine
// takes.
const patience = 3 * time.Minute

// within waits until something holds, or fails.
func within(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// cutOff runs something that its time ends, after it has printed something: in a
// short time where the machine is quiet, and in a longer one where it did not come so
// far.
func cutOff(t testing.TB, h tier.Tier, r tier.Request) (res tier.Result) {
	t.Helper()
	await.Longer(r.Limits.Timeout, func(d time.Duration) bool {
		r.Limits.Timeout = d
		began := time.Now()
		res = run(t, h, r)
		soon(t, began, d)
		return len(res.Stdout) > 0
	})
	return res
}
