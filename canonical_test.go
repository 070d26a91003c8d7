package sallyport_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func TestCanonical(t *testing.T) {
	for _, tt := range []struct{ in, want, err string }{
		{in: ``, want: `{}`},
		{in: ` {"b":1 , "a":2} `, want: `{"a":2,"b":1}`},
		{in: `{"a":"\u0044ROP \/ \u00e9"}`, want: `{"a":"DROP / é"}`},
		{in: `{"n":[9007199254740993,18446744073709551615,1e400,0.1,1.0,-0,12345678901234567890.123456789]}`,
			want: `{"n":[9007199254740993,18446744073709551615,1e400,0.1,1.0,-0,12345678901234567890.123456789]}`},
		{in: `{"a":{"z":1,"y":{"d":1,"c":2}}}`, want: `{"a":{"y":{"c":2,"d":1},"z":1}}`},
		{in: `{"id":1,"id":2}`, err: "duplicate"},
		{in: `{"id":1,"\u0069d":2}`, err: "duplicate"},
		{in: `{"a":{"id":1,"id":2}}`, err: "duplicate"},
		{in: `{"ID":2,"id":1}`, want: `{"ID":2,"id":1}`},
		{in: `{"a":1}{"a":2}`, err: "after top-level value"},
		{in: "{\"a\":\"\xff\"}", err: "UTF-8"},
		{in: "\ufeff{}", err: "not JSON"},
		{in: `{"a":NaN}`, err: "invalid"},
		{in: `{"a":1/*c*/}`, err: "invalid"},
		{in: `[1]`, err: "object"},
		{in: `null`, err: "object"},
		{in: `"x"`, err: "object"},
		{in: `{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, err: "nested"},
	} {
		got, err := sallyport.Canonical(json.RawMessage(tt.in))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Canonical(%.40q) = %s, %v; want an error with %q", tt.in, got, err, tt.err)
			}
			continue
		}
		if err != nil || string(got) != tt.want {
			t.Errorf("Canonical(%.40q) = %s, %v; want %s", tt.in, got, err, tt.want)
		}
	}
}

// Canonical form is a fixed point, and never changes what a strict reader sees.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"b":[1.0,-0,{"x":"\u0000"}],"a":"é"}`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		one, err := sallyport.Canonical(in)
		if err != nil {
			return
		}
		if !json.Valid(one) {
			t.Fatalf("not JSON: %q", one)
		}
		two, err := sallyport.Canonical(one)
		if err != nil || string(one) != string(two) {
			t.Fatalf("not a fixed point: %q → %q, %v", one, two, err)
		}
	})
}
