package npx

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]Command{
		"npx -y @a/server-x":                       {Spec: "@a/server-x", Name: "@a/server-x"},
		"/usr/bin/npx --yes x@1.2.3 /srv -y":       {Spec: "x@1.2.3", Name: "x", Args: []string{"/srv", "-y"}},
		"npx x@latest":                             {Spec: "x@latest", Name: "x"},
		"npx -- x@^1.2":                            {Spec: "x@^1.2", Name: "x"},
		"npx -y --package=@a/b@2 -- prog one":      {Spec: "@a/b@2", Name: "@a/b", Bin: "prog", Args: []string{"one"}},
		"npx -p x prog --flag":                     {Spec: "x", Name: "x", Bin: "prog", Args: []string{"--flag"}},
		"npm exec -y -- x@1 a":                     {Spec: "x@1", Name: "x", Args: []string{"a"}},
		"npm x --yes --package x -- other --o=1 b": {Spec: "x", Name: "x", Bin: "other", Args: []string{"--o=1", "b"}},
	} {
		got, ok, err := Parse(strings.Fields(line))
		if err != nil || !ok || got.Spec != want.Spec || got.Name != want.Name || got.Bin != want.Bin || !slices.Equal(got.Args, want.Args) {
			t.Errorf("%s: %+v %t %v", line, got, ok, err)
		}
	}
	for _, line := range []string{"node /srv/x.js", "python3 -m x", "/opt/mine/server npx", "bash -c npx"} {
		if c, ok, err := Parse(strings.Fields(line)); ok || err != nil {
			t.Errorf("%s is no package: %+v %v", line, c, err)
		}
	}
}

// What a lock of the registry's packages could not pin is refused, and so is
// what is read in another way than npx would.
func TestParseRefuses(t *testing.T) {
	for _, line := range []string{
		"npx", "npx -y", "npx -y --", "npx -c ls", "npx --call=ls", "npx --registry=x y", "npx -p", "npx -p a -p b c", "npx -y -p a",
		"npx ./local", "npx /abs", "npx ../up", "npx git+ssh://h/x", "npx github:a/b", "npx a/b", "npx http://h/x.tgz", "npx x@npm:y", "npx x@file:/y",
		"npx x@", "npx @a", "npx @/b", "npx X", "npx -p a ../b", "npx -- -", "npx -p -x y", "npx a;b", "npm install x", "npm run x", "npm exec", "uvx mcp-server", "pipx run x", "docker run x", "yarn dlx x", "/home/u/.local/bin/uvx x",
	} {
		if c, _, err := Parse(strings.Fields(line)); err == nil {
			t.Errorf("%s: %+v", line, c)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"npx\x00-y\x00@a/b@1\x00x", "npm\x00exec\x00--package=a\x00--\x00b", "node\x00x", "npx\x00-p\x00a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, ok, err := Parse(strings.Split(s, "\x00"))
		if !ok || err != nil {
			return
		}
		if !packageSpec.MatchString(c.Spec) || !strings.HasPrefix(c.Spec, c.Name) || strings.Contains(c.Name, "..") && strings.HasPrefix(c.Name, ".") || strings.HasPrefix(c.Spec, "-") {
			t.Errorf("%q: %+v", s, c)
		}
	})
}
