package redact_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact"
)

// A long output does not take the exit code with it, nor bring a secret out.
func TestStructuredContentIsCutNotDropped(t *testing.T) {
	s := redact.New(redact.Options{MaxBytes: 64 << 10})
	long := strings.Repeat("x", 30<<10) + " postgres://app:hunter2hunter2@db/x " + strings.Repeat("é\"\n", 60<<10)
	raw, err := json.Marshal(map[string]any{
		"content":           []any{map[string]string{"type": "text", "text": long}},
		"structuredContent": map[string]any{"exit_code": 3, "killed_by": "timeout", "stdout": long, "stderr": long, "truncated": false, "password": "tr0ub4dor&3", "rest": []string{long}},
	})
	if err != nil {
		t.Fatal(err)
	}
	clean, _, _, err := s.Result("", sallyport.Tool{}, sallyport.Output{Content: raw})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		StructuredContent struct {
			ExitCode  int    `json:"exit_code"`
			KilledBy  string `json:"killed_by"`
			Stdout    string
			Stderr    string
			Truncated bool
		} `json:"structuredContent"`
	}
	if err := json.Unmarshal(clean, &got); err != nil {
		t.Fatalf("%v: %.200s", err, clean)
	}
	c := got.StructuredContent
	if c.ExitCode != 3 || c.KilledBy != "timeout" || !c.Truncated || len(c.Stdout) < 1000 || len(c.Stderr) < 1000 {
		t.Errorf("exit code %d, killed by %q, truncated %v, %d and %d bytes of output", c.ExitCode, c.KilledBy, c.Truncated, len(c.Stdout), len(c.Stderr))
	}
	if len(clean) > 64<<10 {
		t.Errorf("%d bytes, more than the limit", len(clean))
	}
	if strings.Contains(string(clean), "hunter2") || strings.Contains(string(clean), "tr0ub4dor") {
		t.Error("a secret came out")
	}
}
