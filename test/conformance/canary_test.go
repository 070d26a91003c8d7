package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/risk/risktest"
	"sallyport.dev/sallyport/test/stage"
)

// A policy that looks at the text stops the plain form and no disguise of it.
// The sandbox stops them all: no marker appears where nothing may be written,
// and none on the host; the same disguises do make one in the sandbox's home.
func TestTO35_DisguisedCommandsLeaveNoMarker(t *testing.T) {
	t.Parallel()
	g := stage.New(t)
	g.Write("policies/touch.cedar", `@id("no-touch") @message("touch is not allowed")
forbid (principal, action == Action::"call", resource == Tool::"run_shell") when { context.args has code && context.args.code like "*touch*" };
`)
	g.Start()
	dir := t.TempDir() // the host's; the sandbox has no such folder
	call := func(code string) stage.Said {
		args, err := json.Marshal(map[string]string{"code": code})
		if err != nil {
			t.Fatal(err)
		}
		return g.Run("", "call", "run_shell", string(args))
	}
	if r := call("touch " + filepath.Join(dir, "plain")); r.Code != 3 || !strings.Contains(r.Err+r.Out, "touch is not allowed") {
		t.Fatalf("control: the plain form was not denied: %v", r)
	}
	outside := []string{filepath.Join(dir, "marker"), "/usr/local/bin/marker", "/etc/marker", "/marker"}
	home := risktest.Canaries("/home/agent/marker")
	if len(home) < 30 {
		t.Fatalf("%d canaries, want 30", len(home))
	}
	for i := range home {
		var code strings.Builder
		for _, file := range append([]string{"/home/agent/marker"}, outside...) {
			// Each in a shell of its own, so that none ends the others.
			fmt.Fprintf(&code, "(%s) >/dev/null 2>&1\n", risktest.Canaries(file)[i])
		}
		code.WriteString("[ -e /home/agent/marker ] && echo MADE\n")
		for _, file := range outside {
			fmt.Fprintf(&code, "[ -e %s ] && echo OUTSIDE %s\n", file, file)
		}
		code.WriteString("true\n")
		r := call(code.String())
		if !strings.Contains(r.Out, "MADE") {
			t.Errorf("control: this canary makes no marker at all: %s: %v", home[i], r)
		}
		if strings.Contains(r.Out, "OUTSIDE") {
			t.Errorf("%s: a marker outside of what may be written: %v", home[i], r)
		}
	}
	for _, file := range outside {
		if _, err := os.Lstat(file); !os.IsNotExist(err) {
			t.Errorf("a marker on the host: %s (%v)", file, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the host's folder holds %v (%v)", left, err)
	}
}
