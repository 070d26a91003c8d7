package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact"
)

// Whatever comes in, what goes out is valid, bounded and well-formed; and what
// needed nothing is the same bytes.
func FuzzResult(f *testing.F) {
	for _, s := range []string{
		`{"content":[{"type":"text","text":"hi"}]}`, `{"content":[{"type":"image","data":"AA=="}],"isError":true}`,
		`{"content":[null]}`, `null`, `{"content":[],"structuredContent":{"password":"x","n":1.0}}`, string(text("a\x1b[0m\u200b " + awsKey)),
		"{\"content\":[{\"type\":\"text\",\"text\":\"\xff\\ud800\"}]}", `{"content":[{"type":"text","text":"` + strings.Repeat("a://b:c@d ", 600) + `"}]}`,
	} {
		f.Add([]byte(s))
	}
	s := redact.New(redact.Options{MaxBytes: redact.MinMaxBytes, PII: redact.PII{Email: true, SSN: true, Card: true}})
	f.Fuzz(func(t *testing.T, in []byte) {
		out, isError, findings, err := s.Result("", sallyport.Tool{Name: "t"}, sallyport.Output{Content: bytes.Clone(in)})
		if err != nil {
			t.Fatal(err)
		}
		var r map[string]json.RawMessage
		var content []map[string]any
		if err := json.Unmarshal(out, &r); err != nil || !utf8.Valid(out) {
			t.Fatalf("%q → %q: %v", in, out, err)
		}
		if err := json.Unmarshal(r["content"], &content); err != nil || content == nil {
			t.Fatalf("%q → %q: content: %v", in, out, err)
		}
		if len(out) > redact.MinMaxBytes {
			t.Fatalf("%d bytes out of %d", len(out), len(in))
		}
		if string(r["isError"]) == "true" && !isError {
			t.Fatalf("%q → %q is an error, not reported", in, out)
		}
		if len(findings) == 0 && !bytes.Equal(in, out) {
			t.Fatalf("%q → %q without a finding", in, out)
		}
		if _, again, _, _ := s.Result("", sallyport.Tool{Name: "t"}, sallyport.Output{Content: out}); again != isError {
			t.Fatalf("%q → %q: isError %v, then %v", in, out, isError, again)
		}
	})
}

// plants are secrets, and the part of each that must never be seen.
var plants = [...]struct{ text, secret string }{
	{"postgres://user:hunter2canary@host/db", "hunter2canary"},
	{"redis://:hunter2canary@host:6379", "hunter2canary"},
	{"root:hunter2canary@tcp(db)/x", "hunter2canary"},
	{"host=db user=u password=hunter2canary", "hunter2canary"},
	{"\nDB_PASSWORD=hunter2canary\n", "hunter2canary"},
	{awsKey, awsKey},
	{githubPA, githubPA},
	{slack, slack},
	{pem, "MIIEpAIBAAKCAQEA"},
}

var hidings = [...]func(string) string{
	func(s string) string { return quoted(s) },
	func(s string) string { // every character as a JSON escape
		var b strings.Builder
		for _, r := range s {
			if r < 0x10000 {
				fmt.Fprintf(&b, `\u%04x`, r)
			} else {
				b.WriteRune(r)
			}
		}
		return `"` + b.String() + `"`
	},
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// A planted secret never comes out, wherever it stands and however it is
// written.
func FuzzPlanted(f *testing.F) {
	for i := range uint8(len(plants)) {
		f.Add("before", "after", i, i%6, uint16(i)*7)
	}
	f.Add("👩\u200d👩 {\"a\":", "\\", uint8(3), uint8(4), uint16(9))
	f.Fuzz(func(t *testing.T, before, after string, which, how uint8, at uint16) {
		p := plants[int(which)%len(plants)]
		planted, secret := p.text, p.secret
		place := int(at) % len(planted)
		switch how % 6 {
		case 2:
			planted = planted[:place] + "\u200b" + planted[place:]
		case 3:
			planted = planted[:place] + "\x1b[1;31m" + planted[place:]
		case 4:
			planted = base64.StdEncoding.EncodeToString([]byte(planted))
			secret = planted[len(planted)/2:]
		case 5:
			planted = planted[:place] + "\u202e\U000e0041" + planted[place:]
		}
		whole := hidings[how%2](strings.ToValidUTF8(before, "?") + "\n" + planted + "\n" + strings.ToValidUTF8(after, "?"))
		for _, in := range []string{
			`{"content":[{"type":"text","text":` + whole + `}]}`,
			`{"content":[],"structuredContent":{"rows":[[{"x":` + whole + `}]]}}`,
			`{"content":[],"structuredContent":{` + whole + `:1}}`,
			`{"content":[{"type":"resource","resource":{"uri":"x:y","text":` + whole + `}}]}`,
		} {
			out, _, _, err := all.Result("", sallyport.Tool{}, sallyport.Output{Content: json.RawMessage(in)})
			if err != nil || !json.Valid(out) {
				t.Fatalf("%q → %q: %v", in, out, err)
			}
			seen := strings.NewReplacer(`\\u{200b}`, "", `␛[1;31m`, "", `\\u{202e}\\u{e0041}`, "").Replace(string(out))
			if strings.Contains(seen, secret) {
				t.Fatalf("%s came out:\n%q\n→ %q", secret, in, out)
			}
		}
	})
}
