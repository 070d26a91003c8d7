package visible_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"sallyport.dev/sallyport/redact/visible"
)

func TestTO05_TerminalEscapes(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"CSI", "a\x1b[31mred\x1b[0m", "a␛[31mred␛[0m"},
		{"OSC 8", "\x1b]8;;http://evil.test\x1b\\click\x1b]8;;\x07", "␛]8;;http://evil.test␛\\click␛]8;;␇"},
		{"OSC 52", "\x1b]52;c;ZXZpbA==\x07", "␛]52;c;ZXZpbA==␇"},
		{"DCS", "\x1bPq#0\x1b\\", "␛Pq#0␛\\"},
		{"8-bit CSI", "\u009b31m", `\u{9b}31m`},
		{"8-bit OSC", "\u009d0;title\u009c", `\u{9d}0;title\u{9c}`},
		{"overwrite", "rm -rf /\rls       ", "rm -rf /␍ls       "},
		{"carriage return at line end", "a\r\n", "a␍\n"},
		{"backspace", "rm\b\bls", "rm␈␈ls"},
		{"NUL, BEL, VT, FF, DEL", "\x00\a\v\f\x7f", "␀␇␋␌␡"},
		{"raw C1 byte", "\x9b31m", `\x{9b}31m`},
	} {
		if got := visible.String(tt.in); got != tt.want {
			t.Errorf("%s: String(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

func TestTO04_HiddenUnicode(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"zero width space", "pass\u200bword", `pass\u{200b}word`},
		{"joiner between Latin letters", "a\u200db", `a\u{200d}b`},
		{"joiners in a row", "👩\u200d\u200d👩", `👩\u{200d}\u{200d}👩`},
		{"bidi override", "abc\u202egnp.exe", `abc\u{202e}gnp.exe`},
		{"isolate", "\u2066x\u2069", `\u{2066}x\u{2069}`},
		{"tags", "hi\U000e0069\U000e0067", `hi\u{e0069}\u{e0067}`},
		{"tags after a flag", "🏴\U000e0068\U000e0069\U000e007f", `🏴\u{e0068}\u{e0069}\u{e007f}`},
		{"more tags after a known flag", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f\U000e0068",
			"🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f" + `\u{e0068}`},
		{"selectors in a row", "😀\ufe0f\ufe0f", "😀\ufe0f" + `\u{fe0f}`},
		{"selector after a letter", "a\ufe0f\U000e0101", `a\u{fe0f}\u{e0101}`},
		{"soft hyphen", "pass\u00adword", `pass\u{ad}word`},
		{"Hangul filler", "a\u3164b", `a\u{3164}b`},
		{"byte order mark", "\ufeffa", `\u{feff}a`},
		{"line separator", "a\u2028b", `a\u{2028}b`},
		{"a note without a head", "a\U0001d159b", `a\u{1d159}b`},
		{"joiner of hieroglyphs", "a\U00013431b", `a\u{13431}b`},
		{"what is no character", "a\ufdd0\uffff\U0010fffeb", `a\u{fdd0}\u{ffff}\u{10fffe}b`},
	} {
		if got := visible.String(tt.in); got != tt.want {
			t.Errorf("%s: String(%+q) = %+q, want %+q", tt.name, tt.in, got, tt.want)
		}
	}
}

func TestCleanTextIsUnchanged(t *testing.T) {
	for _, s := range []string{
		"", "plain", "a\tb\nc", "Zürich — naïve “quotes” … €", "日本語テキスト", "葛\U000e0100城",
		"می\u200cخواهم", "شما", "שלום עולם", "क्\u200dष", "සිංහල ක්\u200dර",
		"👨\u200d👩\u200d👧\u200d👦", "👩🏽\u200d🚀", "🏳\ufe0f\u200d🌈", "❤\ufe0f\u200d🔥", "1\ufe0f⃣", "©\ufe0f",
		"🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "🇨🇭", "→ ✓ ☃\ufe0e", "\U00013093\U00013430\U00013171",
	} {
		if got := visible.String(s); got != s {
			t.Errorf("String(%+q) = %+q, want it unchanged", s, got)
		}
	}
}

func TestTextKeepsLineEndingsAndCounts(t *testing.T) {
	got, n := visible.Text("a\r\nb\rc\x1b[0m\u200b")
	if want := "a\r\nb␍c␛[0m" + `\u{200b}`; got != want {
		t.Errorf("Text = %q, want %q", got, want)
	}
	if n[visible.Control] != 2 || n[visible.ZeroWidth] != 1 || !n.Any() {
		t.Errorf("counts = %v", n)
	}
}

func TestAllocatesNothingForCleanText(t *testing.T) {
	s := strings.Repeat("clean text, ümlaut ", 50)
	if n := testing.AllocsPerRun(100, func() { visible.String(s) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// The result is valid UTF-8, a fixed point, and safe for a terminal.
func FuzzString(f *testing.F) {
	for _, s := range []string{"a\x1b[0m", "👩\u200d👩", "\xff\u202e", "🏴\U000e0067\U000e0062", "क्\u200dष", "葛\U000e0100"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := visible.String(s)
		if !utf8.ValidString(got) {
			t.Fatalf("String(%q) = %q is not UTF-8", s, got)
		}
		for _, r := range got {
			if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e {
				t.Fatalf("String(%q) = %q keeps %U", s, got, r)
			}
		}
		if again := visible.String(got); again != got {
			t.Fatalf("not a fixed point: %+q → %+q → %+q", s, got, again)
		}
	})
}

func BenchmarkString(b *testing.B) {
	for name, s := range map[string]string{
		"ascii": strings.Repeat("a line of text\n", 70), "utf8": strings.Repeat("über größe — ", 60),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				visible.String(s)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"clean é 𝄞"}`:                   `{"a":"clean é 𝄞"}`,
		"{\n\t\"a\": \"x\u009b2J\x7fy\"}":     "{\n\t\"a\": \"x\\u009b2J\\u007fy\"}",
		"[\"\u202eabc\u200b\U000e0041\"]\n":   "[\"\\u202eabc\\u200b\\udb40\\udc41\"]\n",
		"{\"\u0085key\":\"a \\u001b stays\"}": "{\"\\u0085key\":\"a \\u001b stays\"}",
	} {
		got := visible.JSON(in)
		if got != want {
			t.Errorf("JSON(%q) = %q, want %q", in, got, want)
		}
		var a, b any
		if json.Unmarshal([]byte(in), &a) != nil || json.Unmarshal([]byte(got), &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("JSON(%q) is another value: %q", in, got)
		}
	}
}
