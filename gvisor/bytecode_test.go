package gvisor_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/realtest"
)

// Python finds the bytecode of its modules in the image, and takes it without
// looking at the source again.
func TestImageHasBytecode(t *testing.T) {
	h := gvisortest.Open(t)
	if !image.NewStore(realtest.Cache()).UpToDate(image.Default()) {
		t.Skip("skipped: the default image is of another recipe; `make build` makes it anew")
	}
	res := run(t, h, tier.Request{Argv: []string{"python3", "-v", "-c", `
import ast, json, email.message, sys
for m in (ast, json, email.message):
    with open(m.__cached__, "rb") as f:
        print(m.__name__, int.from_bytes(f.read(8)[4:], "little"))`}})
	if string(res.Stdout) != "ast 1\njson 1\nemail.message 1\n" {
		t.Errorf("flags of the bytecode (1: never compared with the source): %s", res.Stdout)
	}
	for _, m := range []string{"ast", "json/__init__", "email/message"} {
		if !strings.Contains(string(res.Stderr), "matches /usr/lib/python3.11/"+m+".py") {
			t.Errorf("the bytecode of %s was not used", m)
		}
	}
}
