package redact_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact"
)

// canaries are of 20 to 64 characters, one of them of several lines.
var canaries = []string{
	"CANARY-b7Qx2mLp9RtZ4", "CANARY-h2Kd/8+vW=qP0z&s<T'x\"y\\e%41", "CANARY-Zm9vYmFy_0aXb-9cYd8eZf7gAh6iBj5kCk4lDl3mEm2nFn1oGo0pHp9qIq8",
	"-----BEGIN KEY-----\nCANARYx9k2mQ7\nvL4tB8nZ1cR6\n-----END KEY-----\n", "CANARY-schlüssel-größe-ñandú-7",
}

func wrapped(s string, n int, sep string) string {
	var b strings.Builder
	for len(s) > n {
		b.WriteString(s[:n] + sep)
		s = s[n:]
	}
	return b.String() + s
}

func rot(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return 'a' + (r-'a'+13)%26
		case r >= 'A' && r <= 'Z':
			return 'A' + (r-'A'+13)%26
		}
		return r
	}, s)
}

func backwards(s string) string {
	r := []rune(s)
	for i, j := 0, len(r)-1; i < j; i, j = i+1, j-1 {
		r[i], r[j] = r[j], r[i]
	}
	return string(r)
}

func eachByte(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

// masked are the classes in which a known secret must never be told.
func maskedClasses() map[string]func(string) string {
	std, raw := base64.StdEncoding.EncodeToString, base64.RawURLEncoding.EncodeToString
	return map[string]func(string) string{
		"plain":               func(s string) string { return s },
		"base64, aligned":     func(s string) string { return std([]byte(s)) },
		"base64, one off":     func(s string) string { return std([]byte("x" + s + "tail")) },
		"base64, two off":     func(s string) string { return std([]byte("xy" + s + "t")) },
		"base64 for URLs":     func(s string) string { return base64.URLEncoding.EncodeToString([]byte("?>~" + s)) },
		"base64, no padding":  func(s string) string { return raw([]byte("ab" + s)) },
		"base64 in lines":     func(s string) string { return wrapped(std([]byte("some words before "+s+" and after")), 76, "\n") },
		"base64, short lines": func(s string) string { return wrapped(std([]byte("x"+s)), 7, "\r\n") },
		"hex":                 func(s string) string { return hex.EncodeToString([]byte(s)) },
		"hex in capitals":     func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte("ab" + s))) },
		"hex by x":            func(s string) string { return eachByte(s, `\x%02x`) },
		"hex in lines":        func(s string) string { return wrapped(hex.EncodeToString([]byte(s)), 32, "\n") },
		"hex with colons":     func(s string) string { return strings.TrimSuffix(eachByte(s, "%02X:"), ":") },
		"percent, all":        func(s string) string { return eachByte(s, "%%%02X") },
		"percent, small":      func(s string) string { return eachByte(s, "%%%02x") },
		"a query":             url.QueryEscape,
		"a path":              url.PathEscape,
		"HTML, decimal":       func(s string) string { return eachByte(s, "&#%d;") },
		"HTML, hex":           func(s string) string { return eachByte(s, "&#x%x;") },
		"HTML, named":         html.EscapeString,
		"rot13":               rot,
		"reversed":            backwards,
	}
}

// beyond are classes that are not promised.
func beyond() map[string]func(string) string {
	return map[string]func(string) string{
		"gzip and base64": func(s string) string {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write([]byte(s))
			_ = z.Close()
			return base64.StdEncoding.EncodeToString(b.Bytes())
		},
		"JSON":   func(s string) string { b, _ := json.Marshal(s); return string(b) },
		"UTF-16": func(s string) string { return string(eachUnit(s)) },
		"UTF-16 and base64": func(s string) string {
			return base64.StdEncoding.EncodeToString(eachUnit(s))
		},
		"upper case":  strings.ToUpper,
		"spelled out": func(s string) string { return strings.Join(strings.Split(s, ""), " ") },
		"base64 twice": func(s string) string {
			return base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(s))))
		},
		"hex in base64":    func(s string) string { return base64.StdEncoding.EncodeToString([]byte(hex.EncodeToString([]byte(s)))) },
		"xor and hex":      func(s string) string { return eachByte(strings.Map(func(r rune) rune { return r ^ 1 }, s), "%02x") },
		"escapes in octal": func(s string) string { return eachByte(s, `\%03o`) },
	}
}

func eachUnit(s string) (b []byte) {
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return b
}

// told says whether a result still tells a form.
func told(t *testing.T, g *redact.Sanitiser, in, formText string) bool {
	t.Helper()
	content, _, findings, err := g.Result("", sallyport.Tool{Name: "t"}, sallyport.Output{Content: text(in)})
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(content, &r); err != nil || len(r.Content) != 1 {
		t.Fatalf("%s: %v", content, err)
	}
	out := r.Content[0].Text
	for i := len(formText) / 4; i+8 <= len(formText)*3/4; i++ { // not even a part, but for what its neighbours share
		if strings.Contains(out, formText[i:i+8]) {
			return true
		}
	}
	return out == in || !strings.Contains(fmt.Sprint(findings), "masked: ")
}

// A known secret is masked in the first six classes of encodings, always; the
// others are measured.
func TestTO18_KnownSecretsInEncodings(t *testing.T) {
	now := ""
	g := redact.New(redact.Options{Known: func() []redact.Known {
		return []redact.Known{{Name: "other", Value: "something-else-0"}, {Name: "db", Value: now}}
	}})
	for i, secret := range canaries {
		now = secret
		for class, encode := range maskedClasses() {
			e := encode(secret)
			for where, in := range map[string]string{"alone": e, "in text": "the value is " + e + " as you know", "in quotes": `x="` + e + `"`, "in a URL": "https://a.example/?q=" + e} {
				if told(t, g, in, e) {
					t.Errorf("secret %d, %s, %s is told: %.200q", i, class, where, in)
				}
			}
		}
		// Nothing else is taken for it.
		for class, encode := range maskedClasses() {
			other := encode("HARMLESS-words-of-the-same-kind-0000")
			if got, findings := clean(t, other); got != other && strings.Contains(fmt.Sprint(findings), "stored secret") {
				t.Errorf("%s: something harmless became %q", class, got)
			}
		}
	}
	for class, encode := range beyond() {
		n := 0
		for _, secret := range canaries {
			now = secret
			if e := encode(secret); !told(t, g, e, e) {
				n++
			}
		}
		t.Logf("not promised: %s: %d of %d masked", class, n, len(canaries))
	}
}

// A secret that is cut by the border of two texts of one result is masked in
// both, wherever it is cut.
func TestTO19_CutBetweenTexts(t *testing.T) {
	shapes := map[string]func(a, b string) any{
		"two blocks": func(a, b string) any {
			return map[string]any{"content": []any{map[string]any{"type": "text", "text": a}, map[string]any{"type": "text", "text": b}}}
		},
		"two fields": func(a, b string) any {
			return map[string]any{"content": []any{}, "structuredContent": map[string]any{"a": a, "b": b}}
		},
		"stdout and stderr": func(a, b string) any {
			return map[string]any{"content": []any{map[string]any{"type": "text", "text": "seen: " + a + "\n" + b}}, "structuredContent": map[string]any{"stderr": "", "stdout": a, "zz": b}}
		},
		"at both ends": func(a, b string) any {
			return map[string]any{"content": []any{}, "structuredContent": map[string]any{"stderr": "other words\n" + b, "stdout": a}}
		},
		"deep": func(a, b string) any {
			return map[string]any{"content": []any{}, "structuredContent": map[string]any{"rows": []any{[]any{1, a}, []any{b, 2}}}}
		},
	}
	for name, shape := range shapes {
		for at := 1; at < len(canary); at++ {
			raw, err := json.Marshal(shape("before "+canary[:at], canary[at:]+" after"))
			if err != nil {
				t.Fatal(err)
			}
			content, _, findings, err := guard.Result("", sallyport.Tool{}, sallyport.Output{Content: raw})
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{canary[:at], canary[at:]} {
				if len(part) >= 3 && (name != "at both ends" || at >= 4 && len(canary)-at >= 4) && bytes.Contains(content, []byte(part)) {
					t.Errorf("%s, cut at %d: %s", name, at, content)
				}
			}
			if !strings.Contains(fmt.Sprint(findings), "flag: stored secret db in parts") && name != "stdout and stderr" && name != "at both ends" {
				t.Errorf("%s, cut at %d: findings %q", name, at, findings)
			}
		}
		raw, _ := json.Marshal(shape("nothing of "+canary[:3], "the kind "+canary[4:]))
		if content, _, _, err := guard.Result("", sallyport.Tool{}, sallyport.Output{Content: raw}); err != nil || bytes.Contains(content, []byte("part of stored")) {
			t.Errorf("%s: with a byte missing: %s %v", name, content, err)
		}
	}
}

func BenchmarkKnownForms(b *testing.B) {
	var known []redact.Known
	for i := range 20 {
		known = append(known, redact.Known{Name: fmt.Sprint("s", i), Value: fmt.Sprintf("CANARY-%d-b7Qx2mLp9RtZ4vKd", i)})
	}
	body := strings.Repeat("an ordinary line of a result, with some words in it\n", 1260)
	for name, opt := range map[string]redact.Options{"none": {}, "20 known": {Known: func() []redact.Known { return known }}} {
		g := redact.New(opt)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				_ = g.Text(body)
			}
		})
	}
}
