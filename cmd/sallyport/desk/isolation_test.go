package desk

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/config"
)

// Who adds a server that asks for a folder, and shows it none, is told which.
func TestTrouble(t *testing.T) {
	down := upstream.Status{State: upstream.StateDown, Error: "it ended: exit status 1 (" + outcome.MayHaveActed + ")"}
	for _, test := range []struct {
		what, isolation, want string
		status                upstream.Status
		args, roots           []string
	}{
		{"a folder", "gvisor", "/srv/files", down, []string{"-y", "server-filesystem", "/srv/files"}, nil},
		{"a flag", "gvisor", "/srv/files", down, []string{"--dir=/srv/files"}, nil},
		{"the second", "gvisor", "/srv/b", down, []string{"/srv/a/x", "/srv/b"}, []string{"/srv/a"}},
		{"a name that begins alike", "gvisor", "/srv/ab", down, []string{"/srv/ab"}, []string{"/srv/a"}},
		{"a root", "gvisor", "", down, []string{"/srv/files/in"}, []string{"/srv/files"}},
		{"its own folder, and the image's", "gvisor", "", down, []string{"/home/agent/x.db", "/usr/lib/x.js"}, nil},
		{"a program", "gvisor", "", down, []string{"-c", "/srv\nx"}, nil},
		{"no sandbox", "uid", "", down, []string{"/srv/files"}, nil},
		{"one that is well", "gvisor", "", upstream.Status{State: upstream.StateReady, Error: "x"}, []string{"/srv/files"}, nil},
		{"one that says nothing yet", "gvisor", "", upstream.Status{State: upstream.StateStarting}, []string{"/srv/files"}, nil},
	} {
		c := config.Server{Isolation: test.isolation, Args: test.args}
		for _, r := range test.roots {
			c.Roots = append(c.Roots, config.Root{Path: r})
		}
		said := trouble(test.status, c)
		if strings.Contains(said, "--root") != (test.want != "") || !strings.Contains(said, test.want+" of this host") && test.want != "" {
			t.Errorf("%s: %q", test.what, said)
		}
		if strings.Contains(said, outcome.MayHaveActed) {
			t.Errorf("%s: it speaks of a call: %q", test.what, said)
		}
	}
}
