package talk_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/talk"
	"sallyport.dev/sallyport/redact"
)

// TO-19: output that is told while a program runs is cleaned as one text for
// each stream, whatever comes in between.
func TestTO19_OutputInPieces(t *testing.T) {
	const canary = "CANARY-stored-7f3a9c2e51"
	var out, errs string
	last := 0.0
	s := redact.New(redact.Options{Known: func() []redact.Known { return []redact.Known{{Name: "k", Value: canary}} }})
	hear := talk.Notifier(s, "", func(n sallyport.Notice) {
		var p struct {
			Progress float64
			Message  string
			Meta     map[string]string `json:"_meta"`
		}
		if err := json.Unmarshal(n.Params, &p); err != nil || n.Method != "notifications/progress" || p.Progress <= last {
			t.Errorf("%s %s: %v", n.Method, n.Params, err)
		}
		last = p.Progress
		if p.Meta["dev.sallyport/stream"] == "stderr" {
			errs += p.Message
		} else {
			out += p.Message
		}
	}, func([]string) error { return nil })
	for _, c := range "one " + canary + " line\n" {
		hear(sallyport.Notice{Stream: "stdout", Output: []byte(string(c))})
		hear(sallyport.Notice{Stream: "stderr", Output: []byte("e")})
	}
	hear(sallyport.Notice{Stream: "stderr", Output: []byte("\n")})
	if strings.Contains(out+errs, "CANARY") || !strings.HasPrefix(out, "one [masked") || !strings.HasSuffix(out, " line\n") || strings.Trim(errs, "e") != "\n" {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
}
