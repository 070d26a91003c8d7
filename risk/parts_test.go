package risk_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// TO-25: the end of a long statement is in the part that people see first, whoever
// wrote it and wherever its padding stands.
func TestTO25_PartsShowTheEndOfLongStatements(t *testing.T) {
	judges := analysers(engine(t))
	long := strings.Repeat("/srv/data/archive/2024 ", 400)
	for name, tt := range map[string]struct{ judge, text, want string }{
		"find":            {"shell", "find " + long + "-name '*.log' -delete", "-delete"},
		"find in a shell": {"shell", "bash -c 'find " + long + "-name x -delete'", "-delete"},
		"xargs":           {"shell", "printf '%s\\n' " + long + "| xargs rm -rf", "rm -rf"},
		"rm":              {"shell", "rm -rf " + long + "/etc", "/etc"},
		"heredoc":         {"shell", "bash <<E\necho " + long + "\nrm -rf /etc\nE", "rm -rf /etc"},
		"postgres":        {"postgres", "DELETE FROM t WHERE a IN ('" + strings.Repeat("x", 9000) + "') OR true", "OR true"},
		"mysql":           {"mysql", "DELETE FROM t WHERE a IN ('" + strings.Repeat("x", 9000) + "') OR true", "OR true"},
		"sqlite":          {"sqlite", "DELETE FROM t WHERE a IN ('" + strings.Repeat("x", 9000) + "') OR true", "OR true"},
		"http":            {"http", "DELETE https://api.example.com/" + strings.Repeat("a/", 3000) + "users", "/users"},
	} {
		r := judges[tt.judge](tt.text)
		seen := false
		for _, p := range r.Parts {
			seen = seen || strings.Contains(p.Text, tt.want)
		}
		if r.Level < sallyport.High || !seen {
			t.Errorf("%s: %s, no part shows %q: %.300q", name, verdict(r), tt.want, r.Parts)
		}
	}
}
