package mock

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/test/proc"
)

func TestMockAnswers(t *testing.T) {
	argv, err := Command("", nil)
	if err != nil {
		t.Fatal(err)
	}
	python, err := exec.LookPath(argv[0])
	if err != nil {
		t.Skip("there is no python3 on this machine; the script import runs it in a sandbox")
	}
	cmd := exec.CommandContext(t.Context(), python, argv[1:]...)
	in, out := proc.Start(t, cmd)
	lines := bufio.NewScanner(out)
	for _, step := range []struct{ send, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`, `"protocolVersion": "2025-06-18"`},
		{`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `"name": "get_order"`},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"get_order","arguments":{"id":1}}}`, `"item": "tea"`},
		{`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"get_order","arguments":{"id":2}}}`, `"isError": true`},
		{`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"broken"}}`, `broken on purpose`},
		{`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"none"}}`, `-32602`},
		{`{"jsonrpc":"2.0","id":7,"method":"server/discover"}`, `-32601`},
		{`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"slow","_meta":{"progressToken":"p"}}}`, `"progress": 1`},
	} {
		if _, err := in.Write([]byte(step.send + "\n")); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), step.want) || !json.Valid(lines.Bytes()) {
			t.Errorf("%s: %s", step.send, lines.Text())
		}
	}
	_ = in.Close()
	_ = cmd.Wait()
}

func TestMockSaysWhatIsWrong(t *testing.T) {
	for src, want := range map[string]string{
		"":                                      "no tools",
		"tools: 7":                              "m.yaml",
		"tools: [{name: a}]":                    "no answers",
		"tools: [{name: 'a b', answers: [{}]}]": "cannot be the name",
		"tools: [{name: a, answers: [{}]}, {name: a, answers: [{}]}]":                    "twice",
		"tools: [{name: a, answers: [{latency: soon}]}]":                                 "latency",
		"tools: [{name: a, answers: [{latency: 20m}]}]":                                  "latency",
		"tools: [{name: a, answers: [{progress: -1}]}]":                                  "progress",
		"tools: [{name: a, answers: [{txt: x}]}]":                                        "txt",
		"tools: [{name: a, answers: [{text: '" + strings.Repeat("x", maxTools) + "'}]}]": "more than",
	} {
		if _, err := Command("m.yaml", []byte(src)); sallyport.CodeOf(err) != sallyport.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v", src, err)
		}
	}
}

func FuzzCommand(f *testing.F) {
	f.Add(sample)
	f.Fuzz(func(t *testing.T, src []byte) {
		if argv, err := Command("m", append([]byte{}, src...)); err == nil && (len(argv) != 4 || !json.Valid([]byte(argv[3]))) {
			t.Errorf("%q", argv)
		}
	})
}
