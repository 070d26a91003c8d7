package litesql

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// A long text of many statements costs SQLite their number times its length, so
// that it is refused before it takes minutes.
func TestManyStatementsInALongText(t *testing.T) {
	for name, text := range map[string]string{
		"selects":  strings.Repeat("SELECT 1;", 7_000),
		"comments": strings.Repeat(";/**/", 12_000),
	} {
		if r, parsed := (Judge{}).Judge(text); parsed || r.Level != sallyport.Critical {
			t.Errorf("%s: %v %q, parsed %t", name, r.Level, r.Reasons, parsed)
		}
	}
	if r, _ := (Judge{}).Judge(strings.Repeat(";", 60_000) + "SELECT 1" + strings.Repeat("; ", 1000)); r.Level != sallyport.Low {
		t.Errorf("empty statements: %v %q", r.Level, r.Reasons)
	}
}
