package redact_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/redact"
)

func TestPrefixedSecrets(t *testing.T) {
	s := redact.New(redact.Options{})
	// Put together here, so that this file holds no secret that a scanner finds.
	for _, parts := range [][2]string{
		{"github_pat_", "11ABCDEFG0123456789abc_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789"},
		{"sk-proj-", "abcdefghijABCDEFGHIJ1234567890abcdefghijABCDEFGHIJ"},
		{"sk-ant-", "api03-abcdefghijABCDEFGHIJ1234567890-xyzAA"},
		{"npm_", "abcdefghijklmnopqrstuvwxyz0123456789"},
		{"AGE-SECRET-KEY-1", strings.Repeat("QYQSZQGP", 6)},
		{"sps_", "PGzo0h6jLPD-Lq_gATba9Lpjuillt929xcWaZzlD-b8"},
		{"root:$6$", "abcdefgh$abcdefghijklmnopqrstuvwxyz:19000:0:"},
		{"$2b$", "12$abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyza"},
		{"machine h login u password ", "netrcPass99"},
	} {
		text := "before " + parts[0] + parts[1] + " after"
		if got := s.Text(text); strings.Contains(got, parts[1]) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("%s: %s", parts[0], got)
		}
	}
	for _, harmless := range []string{"the task-ant-hill is a risk-or-chance for the machine", "npm_config_registry", "costs $5$ or $6$", "ghp_short", "sk-proj-1"} {
		if got := s.Text(harmless); got != harmless {
			t.Errorf("%q became %q", harmless, got)
		}
	}
}
