package isolate

import (
	"slices"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
)

// A client calls modules in the name of one owner.
type client struct {
	t *testing.T
	h *Host
}

func (c client) call(code, stdin string, alter ...func(*tier.Request)) tier.Result {
	c.t.Helper()
	r := tier.Request{
		Owner: "owner", Argv: []string{"main.js"}, Stdin: []byte(stdin), Limits: sallyport.Limits{Timeout: 2 * time.Minute}.Or(sallyport.DefaultLimits()),
		Module: &tier.Module{Language: javascript, Code: []byte(code)},
	}
	for _, f := range alter {
		f(&r)
	}
	res, err := c.h.Run(c.t.Context(), r)
	if err != nil {
		c.t.Fatal(err)
	}
	return res
}

// ready waits until a process of the owner waits for the next call, and reports whether
// it has an isolate that was made ahead.
func (c client) ready() (made bool) {
	c.t.Helper()
	await.That(c.t, "the process waits for the next call", func() bool {
		c.h.shelf.mu.Lock()
		defer c.h.shelf.mu.Unlock()
		for at, ps := range c.h.shelf.of {
			if at.owner == "owner" {
				made = slices.ContainsFunc(ps, func(p *process) bool { return p.ahead != nil })
				return true
			}
		}
		return false
	})
	return made
}

// ahead calls a module until an isolate is made ahead for it: three times at most, the
// first of which may be in another process.
func (c client) ahead(code, stdin, want string) {
	c.t.Helper()
	for range 3 {
		if res := c.call(code, stdin); string(res.Stdout) != want {
			c.t.Fatalf("%s: %q %q", code, res.Stdout, res.Stderr)
		}
		if c.ready() {
			return
		}
	}
	c.t.Fatal("none is made ahead")
}

// idle waits until the processes that wait have nothing left to do.
func (c client) idle() {
	c.h.shelf.mu.Lock()
	defer c.h.shelf.mu.Unlock()
	for _, ps := range c.h.shelf.of {
		for _, p := range ps {
			for range 3 {
				_ = p.ping(c.t.Context()) // its call tells
			}
		}
	}
}

// Who runs the same module twice has an isolate made for the third time: a fresh one for
// each call.
func TestFO47_MadeAheadIsFresh(t *testing.T) {
	c := client{t, openHost(t)}
	for _, code := range []string{
		"let n = 0;\nexport default (x) => [++n, x]", // as nothing else, so that it could be loaded early
		"let n = 0; globalThis.m = (globalThis.m ?? 0) + 1;\nexport default async (x) => [++n + m - 1, x]",
	} {
		for range 3 {
			c.ahead(code, "7", "[1,7]\n")
		}
	}
}

// What a module does at its top it does in its call: no processor does this in less than
// the time below, and a busy machine takes longer.
func TestFO47_MadeAheadRanNothing(t *testing.T) {
	c := client{t, openHost(t)}
	code := "let n = 0; for (let i = 0; i < 5e7; i++) n += i % 3;\nexport default () => n"
	for range 2 {
		c.ahead(code, "", "49999999\n")
		c.idle()
		began := time.Now()
		res := c.call(code, "")
		if took := time.Since(began); string(res.Stdout) != "49999999\n" || took < 10*time.Millisecond {
			t.Errorf("after %v: %q %q", took, res.Stdout, res.Stderr)
		}
	}
}

// A script that ends the function which it is the body of has a top, too. What it does
// there it does in its call, and not in an isolate that was made ahead, where no time
// and no caller bounds it.
func TestFO47_MadeAheadRanNoTopOfAScript(t *testing.T) {
	c := client{t, openHost(t)}
	code := "}; let n = 0; for (let i = 0; i < 5e7; i++) n += i % 3; {"
	for range 2 {
		c.ahead(code, "", "")
		c.idle()
		began := time.Now()
		res := c.call(code, "")
		if took := time.Since(began); res.ExitCode != 0 || took < 10*time.Millisecond {
			t.Errorf("after %v: %+v", took, res)
		}
	}
}

// Another module, form, name, import or owner gets an isolate of its own.
func TestFO47_MadeAheadIsForTheSame(t *testing.T) {
	c := client{t, openHost(t)}
	named := func(r *tier.Request) { r.Argv = []string{"other.js"} }
	with := func(r *tier.Request) {
		r.Files = []tier.File{{Path: "a.js", Content: []byte("export default 'imported'")}}
	}
	for _, one := range []struct {
		code, want string
		alter      func(*tier.Request)
	}{
		{`export default () => 'other'`, "\"other\"\n", func(*tier.Request) {}},
		{`console.log('script')`, "script\n", func(*tier.Request) {}},
		{`export default () => new Error().stack.includes('other.js')`, "true\n", named},
		{`import a from './a.js'; export default () => a`, "\"imported\"\n", with},
		{`export default () => 'another'`, "\"another\"\n", func(r *tier.Request) { r.Owner = "another" }},
	} {
		c.ahead(`export default () => 'same'`, "", "\"same\"\n")
		if res := c.call(one.code, "", one.alter); string(res.Stdout) != one.want {
			t.Errorf("%s: %q %q", one.code, res.Stdout, res.Stderr)
		}
		c.ready()
	}
}

// What a call in an isolate that was made ahead prints, is denied, and runs into, is told
// of that call.
func TestMadeAheadIsHeld(t *testing.T) {
	c := client{t, openHost(t)}
	code := `export default async (n) => {
  console.log('call', n);
  if (n === 4) while (true);
  if (n === 3) return (await fetch('http://denied.test/')).status;
}`
	c.ahead(code, "0", "call 0\n")
	if res := c.call(code, "3"); string(res.Stdout) != "call 3\n403\n" || len(res.Connections) != 1 {
		t.Errorf("a denial: %q %q %v", res.Stdout, res.Stderr, res.Connections)
	}
	var res tier.Result
	await.Longer(time.Second, func(d time.Duration) bool { // a short time may not be enough to say something
		c.ahead(code, "0", "call 0\n")
		res = c.call(code, "4", func(r *tier.Request) { r.Limits.Timeout = d })
		return len(res.Stdout) > 0
	})
	if res.KilledBy != tier.KilledByTimeout || string(res.Stdout) != "call 4\n" {
		t.Errorf("a loop: %+v", res)
	}
	if res := c.call(code, "5"); string(res.Stdout) != "call 5\n" {
		t.Errorf("after it: %q %q", res.Stdout, res.Stderr)
	}
}
