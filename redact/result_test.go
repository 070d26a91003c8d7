package redact_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact"
	"sallyport.dev/sallyport/test/cputime"
)

func TestFO24_MalformedOutput(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{``, "not valid JSON"},
		{`null`, "its result is null, not an object"},
		{`[1]`, "its result is an array, not an object"},
		{`"x"`, "its result is a string"},
		{`{}`, "no content"},
		{`{"isError":true}`, "no content"},
		{`{"content":null}`, "content is null, not an array"},
		{`{"content":{}}`, "content is an object, not an array"},
		{`{"content":"x"}`, "content is a string, not an array"},
		{`{"content":[null]}`, "content[0] is null, not an object"},
		{`{"content":[{"type":"text","text":"a"},7]}`, "content[1] is a number, not an object"},
		{`{"content":[{"text":"a"}]}`, "content[0] has no type"},
		{`{"content":[{"type":7}]}`, "content[0].type is a number"},
		{`{"content":[{"type":"text","text":null}]}`, "content[0].text is null"},
		{`{"content":[],"isError":"yes"}`, "isError is a string"},
		{`{"content":[]`, "not valid JSON"},
		{`{"content":[]}{}`, "not valid JSON"},
		{`{"content":[],"content":[]}`, "not valid JSON"},
		{`{"content":[],"a":{"b":1,"b":2}}`, "not valid JSON"},
		{`{"content":[{]}`, "not valid JSON"},
		{`{"content":` + strings.Repeat("[", 20000), "content[0] is an array"},
		{`{"content":[],"a":` + strings.Repeat("[", 20000), "not valid JSON"},
	} {
		for _, tool := range []sallyport.Tool{{Name: "x__y"}, {Name: "x__y", OutputSchema: json.RawMessage(`{}`)}} {
			out, isError, findings, err := all.Result("", tool, sallyport.Output{Content: json.RawMessage(tt.in)})
			if err != nil || !isError || !slices.Equal(findings, []string{"malformed output"}) {
				t.Fatalf("Result(%.40q): isError %v, findings %q, %v", tt.in, isError, findings, err)
			}
			var r struct {
				Content           []struct{ Type, Text string }
				IsError           bool
				StructuredContent *struct{ Code, Step, Message, Hint string }
			}
			if err := json.Unmarshal(out, &r); err != nil || !r.IsError || len(r.Content) != 1 || r.Content[0].Type != "text" {
				t.Fatalf("Result(%.40q) = %s: %v", tt.in, out, err)
			}
			if s := r.Content[0].Text; !strings.Contains(s, tt.want) || !strings.Contains(s, "x__y") {
				t.Errorf("Result(%.40q): text %q, want %q in it", tt.in, s, tt.want)
			}
			if s := r.StructuredContent; (s != nil) != (tool.OutputSchema == nil) || s != nil && s.Code != "upstream_error" {
				t.Errorf("Result(%.40q): structured content %+v", tt.in, s)
			}
		}
	}
	// A control: what is well-formed passes, whatever its types.
	in := `{"content":[{"type":"future","x":null},{"type":"text","text":""}],"isError":true,"x":null}`
	out, isError, _, err := all.Result("", sallyport.Tool{}, sallyport.Output{Content: json.RawMessage(in)})
	if string(out) != in || !isError || err != nil {
		t.Errorf("Result(%s) = %s, %v, %v", in, out, isError, err)
	}
}

func TestFO29_OutputSchemaIsFlagged(t *testing.T) {
	s := redact.New(redact.Options{Schema: func(_ sallyport.Tool, v json.RawMessage) error {
		if string(v) != `{"n":1.0}` {
			return errors.New("hunter2")
		}
		return nil
	}})
	tool := sallyport.Tool{OutputSchema: json.RawMessage(`{}`)}
	for _, tt := range []struct {
		in   string
		want []string
	}{
		{`{"content":[],"structuredContent" : {"n":1.0}}`, nil},
		{`{"content":[],"structuredContent":{"n":2}}`, []string{"flag: structured output does not match the tool's schema"}},
		{`{"content":[],"structuredContent":null}`, []string{"flag: structured output is missing"}},
		{`{"content":[]}`, []string{"flag: structured output is missing"}},
		{`{"content":[],"isError":true}`, nil},
	} {
		out, _, findings, err := s.Result("", tool, sallyport.Output{Content: json.RawMessage(tt.in)})
		if err != nil || string(out) != tt.in || !slices.Equal(findings, tt.want) {
			t.Errorf("Result(%s) = %s, %q, %v; want findings %q", tt.in, out, findings, err, tt.want)
		}
	}
}

func TestRepairsHalfCharacters(t *testing.T) {
	in := "{\"content\":[{\"type\":\"text\",\"text\":\"a\\ud83d b\xff c\"}]}"
	out, _, findings, err := all.Result("", sallyport.Tool{}, sallyport.Output{Content: json.RawMessage(in)})
	want := `{"content":[{"type":"text","text":"a� b� c"}]}`
	if err != nil || string(out) != want || !slices.Equal(findings, []string{"repaired: invalid UTF-8"}) {
		t.Errorf("Result = %q, %q, %v; want %q", out, findings, err, want)
	}
}

func TestBinaryDataIsNotReadAsText(t *testing.T) {
	blob := strings.Repeat("AKIAQ3EGRZ7TU5LNBXWKaaaa", 100)
	in := `{"content":[{"data":"` + blob + `","type":"image","mimeType":"image/png"},{"type":"resource","resource":{"uri":"a:b","blob":"` + blob + `"}}]}`
	out, _, findings, _ := all.Result("", sallyport.Tool{}, sallyport.Output{Content: json.RawMessage(in)})
	if string(out) != in || len(findings) > 0 {
		t.Errorf("Result changed binary data: %.80s… %q", out, findings)
	}
	in = `{"content":[{"type":"image","data":"postgres://u:hunter2@h/d"}]}` // not base64
	if out, _, _, _ := all.Result("", sallyport.Tool{}, sallyport.Output{Content: json.RawMessage(in)}); strings.Contains(string(out), "hunter2") {
		t.Errorf("Result = %s", out)
	}
}

func TestSizeIsBounded(t *testing.T) {
	const limit = 8 << 10
	s := redact.New(redact.Options{MaxBytes: limit})
	dsn := "postgres://u:hunter2@h/d "
	big := strings.Repeat("é", 3000)
	for _, tt := range []struct{ name, in, want string }{
		{"one text", string(text(big + big)), `bytes]"}]}`},
		{"secret on the edge", string(text(strings.Repeat(dsn, 4000))), "[truncated: kept"},
		{"private key on the edge", string(text(strings.Repeat("x", 7000) + pem + strings.Repeat("x", 9000))), "[truncated: kept"},
		{"growing", string(text(strings.Repeat("\u200b", 2500))), `\\u{200b}`},
		{"many blocks", `{"content":[` + strings.Repeat(`{"type":"text","text":"aaaaaaaaaaaaaaaa"},`, 2000) + `{"type":"text","text":"z"}]}`, "[truncated: kept"},
		{"image", `{"content":[{"type":"image","data":"` + strings.Repeat("A", 20000) + `"},{"type":"text","text":"z"}]}`, "[truncated: kept"},
		{"structured", `{"structuredContent":{"a":"` + big + big + `"},"content":[{"type":"text","text":"kept"}]}`, `bytes]","truncated":true},"content":[{"type":"text","text":"kept"}]`},
		{"structured keeps the content", `{"content":[{"type":"text","text":"kept"}],"structuredContent":{"a":"` + big + big + `"}}`, `{"content":[{"type":"text","text":"kept"}]`},
		{"meta", `{"content":[{"type":"text","text":"kept"}],"_meta":{"a":"` + big + big + `"},"isError":true}`, `{"content":[{"type":"text","text":"kept"}],"isError":true}`},
		{"huge name", `{"content":[],"` + big + big + `":1}`, `{"content":[]}`},
		{"names", `{"content":[]` + strings.Repeat(`,"k`, 1) + strings.Repeat("x", 900) + `":1,"a":"` + big + big + `"}`, `{"content":[]`},
	} {
		out, _, findings, err := s.Result("", sallyport.Tool{}, sallyport.Output{Content: json.RawMessage(tt.in)})
		if err != nil || !json.Valid(out) || !utf8.Valid(out) {
			t.Errorf("%s: %.100s, %v", tt.name, out, err)
		}
		if len(out) > limit || !strings.Contains(string(out), tt.want) || !slices.Contains(findings, "truncated") {
			t.Errorf("%s: %d bytes, findings %q, no %q in …%s", tt.name, len(out), findings, tt.want, out[max(0, len(out)-200):])
		}
		if strings.Contains(string(out), "hunter") || strings.Contains(string(out), "MIIE") {
			t.Errorf("%s: a secret got out: …%s", tt.name, out[max(0, len(out)-200):])
		}
	}
	if out, _, _, _ := s.Result("", sallyport.Tool{}, sallyport.Output{Content: text(strings.Repeat("x", 20000))}); len(out) < limit/2 {
		t.Errorf("only %d of %d bytes were used", len(out), limit)
	}
	if got := s.Text(strings.Repeat(dsn, 4000)); len(got) > limit+100 || strings.Contains(got, "hunter") || !strings.HasSuffix(got, "of 100000 bytes]") {
		t.Errorf("Text: %d bytes …%s", len(got), got[len(got)-100:])
	}
}

func TestConcurrentUse(t *testing.T) {
	s := redact.New(redact.Options{}) // cold: the first calls race for the rules
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				in := fmt.Sprintf("%d %d postgres://u:hunter2@h/d %s", i, j, awsKey)
				out, _, findings, err := s.Result("", sallyport.Tool{}, sallyport.Output{Content: text(in)})
				want := string(text(fmt.Sprintf("%d %d postgres://u:[masked: postgres password]@h/d [masked: aws access token]", i, j)))
				if err != nil || string(out) != want || len(findings) != 2 {
					t.Errorf("%s, %q, %v", out, findings, err)
				}
			}
		})
	}
	wg.Wait()
}

// Time grows with the size of the text, whatever is in it.
func TestHostileTextIsLinear(t *testing.T) {
	s := redact.New(redact.Options{PII: redact.PII{Email: true, SSN: true, Card: true}, MaxBytes: 4 << 20})
	if err := s.Warm(); err != nil {
		t.Fatal(err)
	}
	for name, unit := range hostile {
		run := func(n int) time.Duration {
			in := text(strings.Repeat(unit, n/len(unit)))
			best := time.Hour
			for range 2 {
				best = min(best, cputime.Of(func() {
					if _, _, _, err := s.Result("", sallyport.Tool{}, sallyport.Output{Content: in}); err != nil {
						t.Fatal(err)
					}
				}))
			}
			return best
		}
		small, big := run(128<<10), run(1<<20)
		t.Logf("%-22s 128 KiB %v, 1 MiB %v", name, small, big)
		// Small times are noise.
		if big > 40*small && big > 2*time.Second || big > 30*time.Second {
			t.Errorf("%s: 128 KiB took %v, 1 MiB %v: want about 8 times", name, small, big)
		}
	}
}

// mixture is text of keywords and random tails: it wakes every rule and lets
// none finish.
func mixture() string {
	words := []string{"ghp_", "xoxb-", "AKIA", "sk_live_", "eyJhbGciOi", "api_key=", "token: ", "secret", "password=", "azure ", "twilio ", "heroku", "://", "@", "\n", " ", "curl -H ", "facebook=", "mailgun:"}
	r := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for b.Len() < 16<<10 {
		b.WriteString(words[r.IntN(len(words))])
		for range r.IntN(40) {
			b.WriteByte("abcdefABCDEF0123456789_-./+"[r.IntN(27)])
		}
	}
	return b.String()
}

var hostile = map[string]string{
	"mixture":           mixture(),
	"spaces":            " ",
	"letters":           "a",
	"digits":            "4",
	"digits and spaces": "4 ",
	"URLs":              "a://b:c",
	"URL secrets":       "a://b:c@d ",
	"at signs":          "a@",
	"tcp":               "a:b@tcp(",
	"password":          "password",
	"assignments":       "password=",
	"pairs":             "host=a password=b ",
	"quotes":            `password="`,
	"keys":              "key=aB3dE5gH7jK9mN1pQ ",
	"begin":             "-----BEGIN PRIVATE KEY-----",
	"base64":            "cG9zdGdyZXM6Ly91c2VyOnBhc3N3b3JkQGhvc3Q ",
	"escapes":           "\x1b[",
	"zero width":        "a\u200b",
	"flags":             "🏴\U000e0067\U000e0062",
	"curl":              "curl -H x\n",
	"kind secret":       "kind: secret data: ",
	"instructions":      "ignore your instruction ",
	"auth":              "authorization: bearer ",
	"all":               "ghp_ xoxb- akia sk_live_ eyj glpat- api key token secret facebook twitter aws azure jwt curl -----begin ",
}
