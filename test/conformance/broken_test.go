package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// A broken file never means that everything is allowed: serve refuses to start,
// says which line is wrong and what to do, and leaves nothing behind.
func TestTO59_BrokenFilesAtStart(t *testing.T) {
	t.Parallel()
	g := stage.New(t)
	yaml := g.Config("")
	for _, c := range []struct {
		name, file, text string
		say              string // with the file's path before it
	}{
		{"cut short", "sallyport.yaml", yaml + "servers: {a: {", ":2:"},
		{"empty", "sallyport.yaml", "", ": the file is empty"},
		{"only a comment", "sallyport.yaml", "# nothing\n", ":"},
		{"null", "sallyport.yaml", "null\n", ":1:1: "},
		{"a list", "sallyport.yaml", "- listen\n", ":1:1: "},
		{"unknown key", "sallyport.yaml", yaml + "polices: policies\n", ":2:"},
		{"wrong type", "sallyport.yaml", yaml + "approvals: {wait: soon}\n", ":2:"},
		{"duplicate key", "sallyport.yaml", yaml + "listen: 127.0.0.1:1\n", ":2:"},
		{"bad reference", "sallyport.yaml", yaml + "profiles: {p: {servers: [nobody]}}\n", ":2:"},
		{"a tab", "sallyport.yaml", yaml + "limits:\n\trate: 1\n", ":3:"},
		{"cut short", "policies/50.cedar", "permit (principal, action, resource", ":1:"},
		{"empty", "policies/50.cedar", "", ":1:1: "},
		{"unknown annotation", "policies/50.cedar", "@aproval(\"required\") permit (principal, action, resource);\n", ":1:"},
		{"unknown attribute", "policies/50.cedar", "permit (principal, action, resource)\nwhen { resource.knid == \"x\" };\n", ":1:"},
		{"empty", "tools/x.yaml", "", ":1: "},
		{"unknown key", "tools/x.yaml", "server: a\ntool: b\nrsik: low\n", ":3: "},
		{"duplicate key", "tools/x.yaml", "server: a\ntool: b\ntool: c\n", ":3: "},
		{"wrong type", "tools/x.yaml", "server: a\ntool: b\nread_only: maybe\n", ":3: "},
	} {
		t.Run(c.file+"/"+c.name, func(t *testing.T) {
			g.In(t)
			refusedStart(t, g, c.file, c.text, c.say)
		})
	}
	t.Run("Unreadable", func(t *testing.T) {
		for file, say := range map[string]string{"sallyport.yaml": ": cannot be read", "policies/50.cedar": "", "tools/x.yaml": ": cannot be read"} {
			g.In(t)
			path := filepath.Join(g.Data, file)
			before, had := os.ReadFile(path)
			if err := errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o755)); err != nil {
				t.Fatal(err)
			}
			refusedServe(t, g, path+say)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if had == nil {
				g.Write(file, string(before))
			}
		}
	})
	t.Run("NoPolicies", func(t *testing.T) {
		g.In(t)
		files, err := filepath.Glob(filepath.Join(g.Data, "policies", "*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		kept := map[string]string{}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err := errors.Join(err, os.Remove(f)); err != nil {
				t.Fatal(err)
			}
			kept["policies/"+filepath.Base(f)] = string(b)
		}
		refusedServe(t, g, filepath.Join(g.Data, "policies")+": the folder has no policies")
		for name, text := range kept {
			g.Write(name, text)
		}
	})
	g.Start() // the control: the folder is good once the broken file is gone
	g.Stop()
}

func refusedStart(t *testing.T, g *stage.Gateway, file, text, say string) {
	t.Helper()
	path := filepath.Join(g.Data, file)
	before, err := os.ReadFile(path)
	g.Write(file, text)
	refusedServe(t, g, path+say)
	if err == nil {
		g.Write(file, string(before))
		return
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func refusedServe(t *testing.T, g *stage.Gateway, say string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stage.Patience)
	defer cancel()
	out, err := g.Serve(ctx).CombinedOutput()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() <= 0 {
		t.Errorf("serve ended with %v", err)
	}
	if !strings.Contains(string(out), say) || !strings.Contains(string(out), "hint: ") {
		t.Errorf("serve does not say %q with a hint:\n%s", say, out)
	}
	if status, _ := g.Get("/healthz"); status != 0 {
		t.Errorf("somebody listens: %d", status)
	}
	g.Eventually(stage.Patience, "the sandbox host has ended", func() error { return noProcess(t, g.Homes) })
}

// noProcess is nil if no process has the text on its command line.
func noProcess(t *testing.T, text string) error {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if b, err := os.ReadFile(e); err == nil && strings.Contains(string(b), text) {
			return fmt.Errorf("%s is %q", e, b)
		}
	}
	return nil
}

// A bad reload keeps the last good policies and tools, and /readyz tells.
func TestTO59_BrokenReload(t *testing.T) {
	t.Parallel()
	g, _ := ledgered(t, "")
	c := newRaw(t, g)
	version := func() (v string, status int, reload string) {
		var r struct {
			Policy string `json:"policy_version"`
			Reload string
		}
		status, body := g.Get("/readyz")
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			t.Fatal(err, body)
		}
		return r.Policy, status, r.Reload
	}
	first, _, _ := version()
	reload := func(name string, ok bool) {
		t.Helper()
		g.Signal(syscall.SIGHUP)
		g.Eventually(stage.Patience, name+" is noticed", func() error {
			v, status, why := version()
			if ok == (status == http.StatusOK) && ok == (why == "") {
				return nil
			}
			return fmt.Errorf("/readyz: %d, %s, %q", status, v, why)
		})
	}
	still := func(name string) {
		t.Helper()
		if v, _, _ := version(); v != first {
			t.Errorf("%s: the policies' version changed to %s", name, v)
		}
		if a := c.must(t, "a__echo", `{}`, ""); a.Text != `{}` {
			t.Errorf("%s: what was allowed is not: %s", name, a)
		}
		if a := c.must(t, "a__transfer", `{}`, ""); a.Code != "approval_pending" {
			t.Errorf("%s: what needed a human does not: %s", name, a)
		}
	}
	for name, change := range map[string]struct{ file, text string }{
		"half a policy":      {"policies/50.cedar", "forbid (principal, action, resource"},
		"an empty policy":    {"policies/50.cedar", ""},
		"an unknown key":     {"tools/a_transfer.yaml", "server: a\ntool: transfer\nrsik: low\n"},
		"a name taken twice": {"tools/zz.yaml", "server: a\ntool: transfer\nread_only: true\n"},
	} {
		path := filepath.Join(g.Data, change.file)
		before, had := os.ReadFile(path)
		g.Write(change.file, change.text)
		reload(name, false)
		still(name)
		if !strings.Contains(g.Log(), path+":") {
			t.Errorf("%s: the log does not name %s", name, path)
		}
		if had == nil {
			g.Write(change.file, string(before))
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		reload(name+", mended,", true)
		still(name + ", mended")
	}
	// The control: good changes do arrive, of policies and of manifests.
	g.Write("policies/50.cedar", "@id(\"no-echo\")\n@message(\"no echo today\")\nforbid (principal, action == Action::\"call\", resource == Tool::\"a__echo\");\n")
	g.Write("tools/a_transfer.yaml", "server: a\ntool: transfer\nread_only: true\n")
	reload("a good change", true)
	g.Eventually(stage.Patience, "the good change is there", func() error {
		if v, _, _ := version(); v == first {
			return errors.New("the policies' version is what it was")
		}
		return nil
	})
	if a := c.must(t, "a__echo", `{}`, ""); a.Code != "denied" || !strings.Contains(string(a.Result), "no echo today") {
		t.Errorf("the new policy does not decide: %s", a)
	}
	if a := c.must(t, "a__transfer", `{}`, ""); a.Text != "paid {}" {
		t.Errorf("the new manifest does not count: %s", a)
	}
}
