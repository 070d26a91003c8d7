package escape_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/tier"
)

// A trial is what one kind of attacker got from a probe.
type trial struct {
	who   string
	lines []string
}

// trials runs a probe in one cold and in one warm sandbox (of a tier that is slow, in
// the latter with `make escape` only), in a session that was
// frozen and in a server's sandbox; in each as the sandbox's user and as root of a
// user namespace.
func (b bench) trials(t *testing.T, args ...string) (all []trial) {
	t.Helper()
	all = append(all, b.trial(t, false, args...)...)
	if b.warmToo() {
		all = append(all, b.trial(t, true, args...)...)
	}
	h, ok := b.host.(*gvisor.Host)
	if !ok {
		return all // sandboxes of no other tier stay
	}
	all = append(all, b.resumed(t, h, script(args), args...)...)
	return append(all, b.asServer(t, h, script(args), args...)...)
}

// script runs the probe as both.
func script(args []string) string {
	return fmt.Sprintf("chmod +x probe\n./probe%s\necho ROOT\n./probe asroot%s\n", quoted(args), quoted(args))
}

func quoted(args []string) string {
	var s strings.Builder
	for _, a := range args {
		s.WriteString(" '" + strings.ReplaceAll(a, "'", `'\''`) + "'")
	}
	return s.String()
}

func (b bench) trial(t *testing.T, warm bool, args ...string) []trial {
	t.Helper()
	r := tier.Request{
		Image: "default", Files: []tier.File{b.file, {Path: "run.sh", Content: []byte(script(args))}},
		Argv: []string{"bash", "run.sh"}, Limits: sallyport.DefaultLimits(),
	}
	r.Limits.Timeout = 2 * time.Minute
	h := b.cold
	if warm {
		h = b.host
		warmUp(t, h, r)
	} else {
		r.Env = []string{"COLD=1"} // no warm sandbox has variables of its own
	}
	res, err := h.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if res.Receipt.Warm != warm {
		t.Fatalf("warm: %v, want %v", res.Receipt.Warm, warm)
	}
	return split(t, args, string(res.Stdout), string(res.Stderr), map[bool]string{false: "cold", true: "warm"}[warm])
}

// hold says that nothing of a kind came, but for what is known to be harmless
// and is in the table of docs/threat-model.md.
func hold(t *testing.T, all []trial, prefix string, harmless ...string) {
	t.Helper()
	for _, tr := range all {
		for _, l := range with(tr.lines, prefix) {
			if !slices.Contains(harmless, l) {
				t.Errorf("%s: %s %s", tr.who, prefix, l)
			}
		}
	}
}

// weak runs the probe where it must succeed, which shows that it can: on the
// host, as root, in namespaces that unshare makes if there are any, after a
// script that makes a place for it.
func (b tool) weak(t *testing.T, unshare []string, setup, only string, args ...string) []string {
	t.Helper()
	argv := []string{"bash", "-ec", setup + "\nexec " + b.path + quoted(args)}
	if len(unshare) > 0 {
		argv = append(append([]string{"unshare"}, unshare...), argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PROBE_ONLY="+only)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("control %q: %v: %s", args, err, out)
	}
	return ended(t, args, string(out), "")
}

// succeeded says that the control did all of these.
func succeeded(t *testing.T, lines []string, prefix string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !slices.Contains(with(lines, prefix), w) {
			t.Errorf("control: outside, the probe did not get to %s %q: %q", prefix, w, lines)
		}
	}
}
