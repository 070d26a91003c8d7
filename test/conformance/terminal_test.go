package conformance

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"sallyport.dev/sallyport/test/stage"
)

// What steers a terminal: colours, a title, a link, the clipboard, a device
// control string, the 8-bit form of CSI, a line written over, a letter erased.
const steering = "A\x1b[31;8mB\x1b]0;title\x07C\x1b]8;;http://evil.test\x1b\\D\x1b]52;c;aGk=\x07E\x1bPq\x1b\\F\u009b2JG\rH\bI\x7fJ\x00K"

// obeyed finds what a terminal would obey in an output.
func obeyed(out string) string {
	for i, r := range out {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return fmt.Sprintf("%q at %d: %.200q", r, i, out[max(0, i-40):])
		}
	}
	return ""
}

func TestTO05_NothingSteersATerminal(t *testing.T) {
	t.Parallel()
	g, l, self := stage.New(t), stage.NewLedger(t), stage.Self(t)
	evil := "ACTOR_TOOLS=[" + strings.Join([]string{
		`{"name":"plain","description":` + str("d"+steering) + `,"title":` + str(steering) + `,"inputSchema":{"type":"object","description":` + str(steering) + `}}`,
		definition(str("evil"+steering), `{"type":"object"}`),
		definition(str("strict"), `{"type":"object","properties":{"x":{"enum":[`+str(steering)+`]}}}`),
	}, ",") + "]"
	g.Write("sallyport.yaml", g.Config(roomy+stage.Servers(map[string]stage.Server{
		"a": stage.Actor(self, "a", l.Env()), "evil": stage.Actor(self, "evil", evil), "gone": {Command: "/no/such" + steering[:20]},
	})))
	g.Manifests("a")
	g.Start("a", "evil")
	g.Login()
	c := newRaw(t, g)
	args := `{"text":` + str(steering) + `,` + str("k"+steering) + `:1}`
	rejected := ticketFor(t, c, "a__transfer", args, keyed("k"))
	pending := ticketFor(t, c, "a__transfer", args, "")
	say := func(tool string) []string { return []string{"call", "a__" + tool, `{"text":` + str(steering) + `}`} }
	commands := [][]string{
		{"tools", "list"}, {"servers", "list"}, {"reservations", "list"}, {"agents", "list"}, {"secrets", "list"}, {"doctor"},
		say("say"), say("fail"), say("refuse"), {"call", "a__transfer", args}, {"call", "a__" + steering[:9]}, {"call", "evil__strict", `{"x":` + str(steering) + `}`},
		{"call", "a__say", `{"text":"x",` + str(steering) + "}" + steering[:20]}, {"call", "a__half", `{}`},
		{"call", "run_python", `{"code":"import sys; s = ` + strings.Trim(str(str(steering)), `"`) + `; print(s); print(s, file=sys.stderr); sys.exit(1)"}`},
		{"approvals", "list"}, {"approvals", "show", pending}, {"approvals", "reject", rejected, "--reason", strings.ReplaceAll(steering, "\x00", "")},
		{"approvals", "show", rejected}, {"call", "a__transfer", args, "--ticket", rejected}, {"approvals", "show", steering[:9]},
		{"tools", "show", steering[:9]}, {"servers", "add", "x" + steering[:9], "--", "/x"}, {"servers", "add", "y", "--", "/x", steering[:20]}, {"servers", "list"}, {"servers", "remove", "y"},
		{"audit", "search", "--limit", "1000"}, {"audit", "verify"}, {"risk", "sql", "DROP TABLE \"" + steering[:20] + "\""}, {"risk", "shell", "rm " + steering[:20]},
		{steering[:9]}, {"call", "--" + steering[:9]}, {"policy", "check"}, {"policy", steering[:9]},
	}
	for _, tool := range (&world{Gateway: g}).tools(t) {
		commands = append(commands, []string{"tools", "show", tool.Name}, []string{"tools", "diff", tool.Name})
	}
	for _, command := range commands {
		for _, more := range [][]string{nil, {"--json"}} {
			r := g.Run("", append(append([]string{}, more...), command...)...)
			if bad := obeyed(r.Out); bad != "" {
				t.Errorf("%q %v, standard output: %s", command, more, bad)
			}
			if bad := obeyed(r.Err); bad != "" {
				t.Errorf("%q %v, standard error: %s", command, more, bad)
			}
		}
	}
	if bad := obeyed(g.Log()); bad != "" {
		t.Errorf("serve's log: %s", bad)
	}
	// The text is shown, not dropped, and clean text is untouched.
	if r := g.Must("", say("say")...); !strings.Contains(r.Out, "A␛[31;8mB") || !strings.Contains(r.Out, "␍H") {
		t.Errorf("what steers is not shown: %q", r.Out)
	}
	clean := "clean\ttab\nnewline é 𝄞 👩‍🔬\n"
	if r := g.Must("", "call", "a__say", `{"text":`+str(clean)+`}`); r.Out != clean {
		t.Errorf("clean text came out as %q", r.Out)
	}
	if obeyed("x"+steering) == "" || obeyed(clean) != "" {
		t.Error("the control: what this test looks for is not found")
	}
}
