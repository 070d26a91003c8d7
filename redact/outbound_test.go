package redact_test

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact"
)

const canary = "CANARY-b7Qx2mLp9RtZ4vKd"

var guard = redact.New(redact.Options{Fingerprint: func(s string) string { return fmt.Sprint(len(s), "-", s[:2]) }, Known: func() []redact.Known { return []redact.Known{{Name: "db", Value: canary}} }})

func encodings() map[string]func(string) string {
	jsonText := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	b64 := base64.StdEncoding.EncodeToString
	return map[string]func(string) string{
		"plain":                func(s string) string { return s },
		"in a sentence":        func(s string) string { return "the key is " + s + " as you know" },
		"base64":               func(s string) string { return b64([]byte(s)) },
		"base64 for URLs":      func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("~~~?" + s)) },
		"base64, one off":      func(s string) string { return b64([]byte("x " + s)) },
		"base64, two off":      func(s string) string { return b64([]byte("xy " + s + " z")) },
		"base64 twice":         func(s string) string { return b64([]byte(b64([]byte(s)))) },
		"base64 in lines":      func(s string) string { e := b64([]byte(s + " " + s)); return e[:40] + "\n" + e[40:] },
		"base64 behind a name": func(s string) string { return "data:text/plain;base64," + b64([]byte(s)) },
		"hex":                  func(s string) string { return hex.EncodeToString([]byte(s)) },
		"hex in capitals":      func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"percent":              func(s string) string { return percent(s) },
		"a URL's query":        func(s string) string { return "https://a.example/?q=" + url.QueryEscape(s) },
		"a URL's path":         func(s string) string { return "https://a.example/" + s + "/x" },
		"a file's path":        func(s string) string { return "/tmp/" + s + ".txt" },
		"JSON in a string":     func(s string) string { return `{"a":{"b":[` + jsonText(s) + `]}}` },
		"JSON twice":           func(s string) string { return jsonText(`{"a":` + jsonText(s) + `}`) },
		"base64 of JSON":       func(s string) string { return b64([]byte(`{"a":` + jsonText(s) + `}`)) },
		"HTML entities":        func(s string) string { return entities(s) },
		"backslash escapes":    func(s string) string { return escapes(s) },
		"octal escapes":        func(s string) string { return each(s, `\%03o`) },
		"escapes in braces":    func(s string) string { return each(s, `\u{%x}`) },
		"long escapes":         func(s string) string { return each(s, `\U%08x`) },
		"hex with a prefix":    func(s string) string { return "0x" + hex.EncodeToString([]byte(s)) },
		"hex behind 0X":        func(s string) string { return "v0X" + hex.EncodeToString([]byte(s)) + " 0x" },
		"hex, bytes apart":     func(s string) string { return strings.TrimSpace(each(s, "%02x ")) },
		"hex with colons":      func(s string) string { return strings.TrimSuffix(each(s, "%02X:"), ":") },
		"hex in an array":      func(s string) string { return "[" + strings.TrimSuffix(each(s, "0x%02x, "), ", ") + "]" },
		"numbers":              func(s string) string { return strings.TrimSuffix(each(s, "%d,"), ",") },
		"base32":               func(s string) string { return base32.StdEncoding.EncodeToString([]byte(s)) },
		"base32 in a host": func(s string) string {
			return "https://" + strings.ToLower(strings.TrimRight(base32.StdEncoding.EncodeToString([]byte(s)), "=")) + ".a.example"
		},
		"quoted-printable":      func(s string) string { return each(s, "=%02X") },
		"UTF-16 in base64":      func(s string) string { return b64([]byte(each(s, "%c\x00"))) },
		"full width":            func(s string) string { return wide(s) },
		"between other letters": func(s string) string { return "aaa " + s },
		"torn by zero width":    func(s string) string { return s[:8] + "\u200b" + s[8:] },
		"a fragment of code":    func(s string) string { return "curl -H 'X-Key: " + s + "' https://a.example" },
	}
}

// each writes the bytes of s one by one.
func each(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func wide(s string) string {
	return strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			r += 0xfee0
		}
		return r
	}, s)
}

func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{s[i]})))
	}
	return b.String()
}

func entities(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteString("&#" + strings.TrimLeft(hexless(int(r)), "0") + ";")
	}
	return b.String()
}

func hexless(n int) string { b, _ := json.Marshal(n); return string(b) }

func escapes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString(`\x` + hex.EncodeToString([]byte{s[i]}))
	}
	return b.String()
}

// TO-21: a secret in arguments is found wherever it stands and however it is
// written, and is told by place, kind and fingerprint only. The same arguments
// with something harmless in its place tell nothing.
func TestTO21_SecretsInOutboundArguments(t *testing.T) {
	prints := map[string]bool{}
	for kind, value := range map[string]string{"known": canary, "github": githubPA, "aws": awsKey, "dsn": "postgres://bob:hunter2xyz@db.example/x"} {
		for how, encode := range encodings() {
			if kind == "dsn" && how == "torn by zero width" {
				continue // tears the scheme, not the password
			}
			for place, args := range map[string]any{
				"a text":        map[string]any{"q": encode(value)},
				"deep":          map[string]any{"a": []any{map[string]any{"b": encode(value)}}},
				"an attachment": map[string]any{"files": []any{map[string]any{"name": "a.txt", "content": encode(value)}}},
			} {
				raw, err := json.Marshal(args)
				if err != nil {
					t.Fatal(err)
				}
				parts, whole := guard.Secrets(raw)
				if len(parts) == 0 || !whole {
					t.Errorf("%s, %s, %s: not found in %s", kind, how, place, raw)
					continue
				}
				for _, p := range parts {
					if strings.Contains(p.Text+p.Path, value) || p.Path == "" || p.Label != "secret" {
						t.Errorf("%s, %s: told as %+v", kind, how, p)
					}
					if kind == "known" && strings.Contains(p.Text, "stored secret db") {
						prints[p.Text] = true
					}
				}
			}
			harmless := strings.Repeat("the weather is fine ", 3)
			if parts, _ := guard.Secrets(mustJSON(t, map[string]any{"q": encode(harmless)})); len(parts) > 0 {
				t.Errorf("%s: %v found in something harmless", how, parts)
			}
		}
	}
	if len(prints) != 1 {
		t.Errorf("one secret has fingerprints %v", prints)
	}
}

func mustJSON(t testing.TB, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOutboundNamesAndKeys(t *testing.T) {
	for _, tt := range []struct {
		args string
		path string // "" if nothing is to be found
	}{
		{`{"password":"hunter2!x"}`, "/password"},
		{`{"a":{"clientSecret":"s3cr3t-v4lue"}}`, "/a/clientSecret"},
		{`{"` + githubPA + `":1}`, "/" + githubPA},
		{`{"n":1}`, ""}, {`{}`, ""}, {`[]`, ""}, {`{"max_tokens":"100"}`, ""},
		{`{"id":"3f2504e0-4f89-11d3-9a0c-0305e82c3301","sha":"2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"}`, ""},
		{`{"text":"the password is stored in the vault","url":"https://a.example/reset-password"}`, ""},
		{`{"image":"` + base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"+strings.Repeat("\x01\xfe", 200))) + `"}`, ""},
	} {
		parts, whole := guard.Secrets(json.RawMessage(tt.args))
		if !whole || (len(parts) > 0) != (tt.path != "") || strings.Contains(fmt.Sprint(parts), githubPA) {
			t.Errorf("%s: %v, whole %v", tt.args, parts, whole)
		}
	}
}

// A secret that is known by its value is masked on every way out, too.
func TestKnownSecretsAreMasked(t *testing.T) {
	for name, s := range map[string]string{
		"plain": canary, "in a sentence": "it is " + canary + ".", "twice": canary + " " + canary, "torn": canary[:9] + "\u200b" + canary[9:],
		"base64": base64.StdEncoding.EncodeToString([]byte("the key: " + canary)),
	} {
		content, _, findings, err := guard.Result("", sallyport.Tool{}, sallyport.Output{Content: text(s)})
		forms := []string{canary, canary[9:], base64.StdEncoding.EncodeToString([]byte("the key: " + canary))}
		all := string(content) + string(guard.JSON(mustJSON(t, map[string]any{"a": s}))) + guard.Text(s)
		for _, form := range forms {
			if err != nil || strings.Contains(all, form) {
				t.Errorf("%s: %s, %v", name, all, err)
			}
		}
		if !strings.Contains(fmt.Sprint(findings), "masked: ") {
			t.Errorf("%s: findings %v", name, findings)
		}
	}
	if got := string(guard.JSON(json.RawMessage(`{"a":"\u0043ANARY-b7Qx2mLp9RtZ4vKd"}`))); strings.Contains(got, "Qx2mLp") {
		t.Errorf("with an escape: %s", got)
	}
	if got := guard.Text("CANARY"); got != "CANARY" {
		t.Errorf("a part of it became %q", got)
	}
}

// Padding does not hide a secret: what is not looked through is said.
func TestOutboundIsBounded(t *testing.T) {
	long := mustJSON(t, map[string]any{"a": strings.Repeat("x ", 1<<20), "b": canary})
	if parts, whole := guard.Secrets(long); whole || len(parts) > 0 && parts[0].Path == "" {
		t.Errorf("2 MB: %v, whole %v", parts, whole)
	}
	bomb := "x"
	for range 12 {
		bomb = base64.StdEncoding.EncodeToString([]byte(bomb + bomb + " and more"))
	}
	guard.Secrets(mustJSON(t, map[string]any{"a": bomb}))
}

func TestOutboundLeavesCleanTextAlone(t *testing.T) {
	for name, s := range corpus {
		if parts, whole := guard.Secrets(mustJSON(t, map[string]any{"a": s})); len(parts) > 0 || !whole {
			t.Errorf("%s: %v, whole %v", name, parts, whole)
		}
	}
}

func FuzzOutbound(f *testing.F) {
	for _, s := range []string{`{"a":"b"}`, `{"a":"%41%42"}`, `["\\x41"]`, `{"a":"QUJDREVGR0hJSktM"}`, `{"a":"{\"b\":\"c\"}"}`, `{`, `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parts, _ := guard.Secrets(json.RawMessage(s))
		for _, p := range parts {
			if strings.Contains(p.Text+p.Path, canary) {
				t.Fatalf("%q: %v", s, p)
			}
		}
	})
}

func BenchmarkOutbound(b *testing.B) {
	for name, s := range corpus {
		args := mustJSON(b, map[string]any{"a": s})
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				guard.Secrets(args)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)*1024/float64(len(args)), "µs/KB")
		})
	}
}

// Keys as clients make them are no secrets; with one in it a key is found out.
func TestTO21_IdempotencyKeys(t *testing.T) {
	for _, key := range []string{"order-1", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "k2026-11-30T04:41:52Z",
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=", "V1StGXR8_Z5jdHi6B-myT"} {
		if parts, whole := guard.Secrets(json.RawMessage(quoted(key))); len(parts) > 0 || !whole {
			t.Errorf("%s: %+v", key, parts)
		}
		for _, with := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary)), hex.EncodeToString([]byte(canary))} {
			if parts, _ := guard.Secrets(json.RawMessage(quoted(key + "/" + with))); len(parts) == 0 {
				t.Errorf("%s: not found", key+"/"+with)
			}
		}
	}
}

// What is glued to the front of an encoded secret does not hide it, be it a path.
func TestTO21_GluedToOtherText(t *testing.T) {
	const live = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
	b64 := base64.StdEncoding.EncodeToString
	for name, text := range map[string]string{
		"a path, base64":          "https://a.example/report/2026/" + b64([]byte(canary)),
		"a path, hex":             "https://a.example/u/" + hex.EncodeToString([]byte(canary)) + "/x",
		"letters, base64":         "Kunde" + b64([]byte(canary)),
		"a path, of a known kind": "https://a.example/report/2026/" + base64.RawURLEncoding.EncodeToString([]byte(live)),
		"a name, of a known kind": "backup-" + hex.EncodeToString([]byte(live)) + "-1",
	} {
		if parts, whole := guard.Secrets(mustJSON(t, map[string]any{"url": text})); len(parts) != 1 || !whole {
			t.Errorf("%s: %+v, whole %t", name, parts, whole)
		}
	}
}

// FO-43: the name of an argument can be a secret, too; what is told of it, or of what
// stands under it, does not hold it, however the pointer to it writes it.
func TestFO43_NamesThatAreSecrets(t *testing.T) {
	for _, secret := range []string{"postgres://app:tr0ub4dor-and-3@db.internal/x", canary, "a/" + canary + "~b", base64.StdEncoding.EncodeToString([]byte(canary))} {
		for _, args := range []map[string]any{{secret: 1}, {"a": map[string]any{secret: []any{secret}}}} {
			parts, whole := guard.Secrets(mustJSON(t, args))
			if len(parts) == 0 || !whole {
				t.Errorf("%v: nothing is found", args)
			}
			for _, p := range parts {
				if told := p.Text + sallyport.PointerName(p.Path); strings.Contains(told, "tr0ub4dor") || strings.Contains(told, canary) || strings.Contains(told, secret) {
					t.Errorf("%v: %+v", args, p)
				}
			}
		}
	}
}
