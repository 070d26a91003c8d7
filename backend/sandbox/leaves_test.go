package sandbox_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/redact"
)

const leaving = `
import base64, codecs, html, os, sys, urllib.parse
s = os.environ["KEY"]
b = s.encode()
for v in (s, base64.b64encode(b), base64.b64encode(b"x" + b), base64.b64encode(b"xy" + b), base64.urlsafe_b64encode(b"?>" + b).rstrip(b"="),
          base64.encodebytes(b"some words before " + b + b" and after, so that it is wrapped").decode(), b.hex(), b.hex().upper(), "".join("\\x%02x" % c for c in b),
          "".join("%%%02X" % c for c in b), urllib.parse.quote(s, safe=""), "".join("&#%d;" % c for c in b), html.escape(s), codecs.encode(s, "rot13"), s[::-1]):
    v = v.decode() if isinstance(v, bytes) else v
    print("value: " + v)
    print(v, file=sys.stderr)
    open("out.txt", "a").write(v + "\n")
for c in s:                      # one write for each character
    os.write(1, c.encode())
print()
print(open("out.txt").read())
sys.stdout.write(s[:11]); sys.stdout.flush()
sys.stderr.write(s[11:]); sys.stderr.flush()
`

// What a program prints of a stored secret, in any of the usual encodings, in
// pieces, through files and on both streams, is masked in its result.
func TestTO18_WhatLeavesASandbox(t *testing.T) {
	const value = "CANARY-k3&y<Zq9/+w=7Lm2Xc4"
	b := newHost(t).start(t, sandbox.Options{Secrets: secrets{"t/key": value}})
	tool := sallyport.Tool{Name: "x", Code: &sallyport.Script{Language: "python", Source: leaving}}
	tool.Manifest.Secrets = []sallyport.SecretGrant{{Name: "key", Env: "KEY"}}
	out, err := b.Run(t.Context(), codeJob(tool, `{}`))
	if err != nil {
		t.Fatal(err)
	}
	guard := redact.New(redact.Options{Known: func() []redact.Known { return []redact.Known{{Name: "key", Value: value}} }})
	clean, _, findings, err := guard.Result("", tool, out)
	if err != nil {
		t.Fatal(err)
	}
	// Whatever the encoding, it ends in these forms of a middle part.
	for _, part := range []string{"Zq9", "7Lm2Xc", "5a71392f", "2b773d374c6d", "5A71392F", "%5A%71", "&#90;&#113;", "7Yz2K", "cX2mL7", "WnE5L", "Wnk5", "pxOS8", "cTkvK3c9N"} {
		before, after := strings.Count(string(out.Content), part), strings.Count(string(clean), part)
		if after > 0 {
			t.Errorf("%q is told %d times (before: %d): %s", part, after, before, clean)
		}
	}
	var r struct {
		StructuredContent struct{ Stdout, Stderr string }
	}
	if err := json.Unmarshal(clean, &r); err != nil || strings.Count(r.StructuredContent.Stdout, "[masked: ") < 30 || strings.Count(r.StructuredContent.Stderr, "[masked: ") < 15 {
		t.Errorf("control: %d and %d masks, findings %q, %v", strings.Count(r.StructuredContent.Stdout, "[masked: "), strings.Count(r.StructuredContent.Stderr, "[masked: "), findings, err)
	}
	if s := r.StructuredContent; !strings.HasSuffix(strings.TrimSpace(s.Stdout), "]") || !strings.HasSuffix(s.Stderr, "]") {
		t.Errorf("cut over both streams: %.100q, %.100q", s.Stdout[len(s.Stdout)-60:], s.Stderr[max(0, len(s.Stderr)-60):])
	}
}
