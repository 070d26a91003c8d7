package progress

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"
)

func TestProgressGrows(t *testing.T) {
	var m Meter
	for _, tt := range []struct{ in, want string }{
		{"1.0", "1.0"}, {"1", "1.0009765625"}, {"2", "2"}, {"-5", "2.0009765625"}, {`"3"`, ""}, {"", ""}, {"null", ""}, {"NaN", ""}, {"1e400", ""},
		{"9007199254740993", "9007199254740993"}, {"9007199254740993", "9.007199254740994e+15"},
		{"1.7976931348623157e308", "1.7976931348623157e308"}, {"1.7976931348623157e308", ""}, {"3", ""},
	} {
		if got := string(m.Pass(json.RawMessage(tt.in))); got != tt.want {
			t.Errorf("%s is told as %q, want %q", tt.in, got, tt.want)
		}
	}
	if got := (&Meter{}).Pass(json.RawMessage("-1")); string(got) != "0" {
		t.Errorf("a first value below nothing is told as %s", got)
	}
}

// FO-24: no value of a server makes what the client gets anything but growing JSON numbers.
func FuzzPass(f *testing.F) {
	f.Add("1", "1.7976931348623157e308", "1.7976931348623157e308")
	f.Add("-0", "1e-320", "NaN")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		var m Meter
		last := math.Inf(-1)
		for _, in := range []string{a, b, "", c, b} {
			got := m.Next()
			if in != "" {
				got = m.Pass(json.RawMessage(in))
			}
			if got == nil {
				continue
			}
			v, err := strconv.ParseFloat(string(got), 64)
			if err != nil || v <= last || in != string(got) && !json.Valid(got) {
				t.Fatalf("%q is told as %s after %v", in, got, last)
			}
			last = v
		}
	})
}
