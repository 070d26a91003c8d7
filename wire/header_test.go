package wire_test

import (
	"testing"
	"unicode/utf8"

	"sallyport.dev/sallyport/wire"
)

func TestHeaderValue(t *testing.T) {
	for _, tt := range []struct{ plain, header string }{
		{"us-west1", "us-west1"},
		{"", ""},
		{"a b\tc", "a b\tc"},
		{"Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="},
		{" padded ", "=?base64?IHBhZGRlZCA=?="},
		{"line1\nline2", "=?base64?bGluZTEKbGluZTI=?="},
		{"=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
		{"=?BASE64?literal?=", "=?BASE64?literal?="},
		{"=?base64?=", "=?base64?="}, // too short to be one
	} {
		if got := wire.EncodeHeader(tt.plain); got != tt.header {
			t.Errorf("EncodeHeader(%q) = %q, want %q", tt.plain, got, tt.header)
		}
		if got, err := wire.DecodeHeader(tt.header); err != nil || got != tt.plain {
			t.Errorf("DecodeHeader(%q) = %q, %v; want %q", tt.header, got, err, tt.plain)
		}
	}
	for _, bad := range []string{"é", "a\x00b", " x", "=?base64?%%?=", "=?base64?YR==?=", "=?base64?/w==?=", "=?base64?YQ?="} {
		if got, err := wire.DecodeHeader(bad); err == nil {
			t.Errorf("DecodeHeader(%q) = %q, want an error", bad, got)
		}
	}
}

func FuzzHeaderValue(f *testing.F) {
	for _, s := range []string{"a", " a", "=?base64?YQ==?=", "é", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := wire.DecodeHeader(s); err == nil && !utf8.ValidString(d) {
			t.Fatalf("DecodeHeader(%q) = %q", s, d)
		}
		if !utf8.ValidString(s) {
			return
		}
		if got, err := wire.DecodeHeader(wire.EncodeHeader(s)); err != nil || got != s {
			t.Fatalf("%q → %q → %q, %v", s, wire.EncodeHeader(s), got, err)
		}
	})
}
