package sallyport

import (
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestParseAmount(t *testing.T) {
	for in, want := range map[string]string{
		"999": "999", "0.1": "0.1", "1e3": "1000", "1E+3": "1000", "12.50": "12.5", "-999": "999", "0": "0", "-0": "0",
		"12345678901234567890.123456789": "12345678901234567890.123456789", "1e-3": "0.001", "007": "7",
	} {
		r, err := ParseAmount(in)
		if err != nil || FormatAmount(r) != want {
			t.Errorf("ParseAmount(%q) = %v, %v; want %s", in, r, err, want)
		}
	}
	for _, in := range []string{
		"", "-", "--1", "+1", "1,000", "1.000,50", "1e400", "1e-400", "1e31", "1e99999999999999999999", "NaN", "Inf", "0x10", "1/2", ".5", "5.",
		"1e", "1 ", " 1", "１", "1_000", "1e1e1", "1E1e1", strings.Repeat("9", 61),
	} {
		if r, err := ParseAmount(in); err == nil {
			t.Errorf("ParseAmount(%q) = %v, want an error", in, r)
		}
	}
	sum := new(big.Rat) // 0.1 ten times is 1, which floats do not know
	for range 10 {
		r, err := ParseAmount("0.1")
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(sum, r)
	}
	if FormatAmount(sum) != "1" {
		t.Errorf("the sum is %s", FormatAmount(sum))
	}
}

func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"1", "-1.5", "1e30", "1e31", "1,0", strings.Repeat("1", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseAmount(s)
		if err != nil {
			return
		}
		again, err := ParseAmount(FormatAmount(r))
		if err != nil && len(FormatAmount(r)) <= maxDigits || err == nil && again.Cmp(r) != 0 || r.Sign() < 0 {
			t.Errorf("%q is %v, and again %v, %v", s, r, again, err)
		}
	})
}

func TestWindowCounts(t *testing.T) {
	for _, tt := range []struct {
		window, amount string
		want           bool
	}{{"EUR", "EUR", true}, {"EUR", "eur", true}, {"EUR", "USD", false}, {"EUR", "", true}, {"EUR", "€", true}, {"EUR", "EURO", true}, {"EUR", "US$", true}, {"EUR", " eur ", true}, {"EUR", " USD", false},
		{"USDT", "usdt", true}, {"USDT", "EUR", false}, {"", "USD", true}, {"", "", true}} {
		if got := (Window{Currency: tt.window}).Counts(tt.amount); got != tt.want {
			t.Errorf("a window of %q counts %q: %v", tt.window, tt.amount, got)
		}
	}
	for _, tt := range []struct {
		pattern, tool string
		want          bool
	}{{"", "a", true}, {"*", "a", true}, {"bank__*", "bank__pay", true}, {"bank__*", "bank_pay", false}, {"pay", "pay", true}, {"pay", "pay2", false}} {
		if got := Matches(tt.pattern, tt.tool); got != tt.want {
			t.Errorf("Matches(%q, %q) = %v", tt.pattern, tt.tool, got)
		}
	}
	o := Overrun{Window: Window{Currency: "EUR", Limit: "1000", Per: time.Minute, By: ByPrincipal}, Sum: "1998"}
	if s := o.String(); !strings.Contains(s, "1998 EUR") || !strings.Contains(s, "1000 EUR") {
		t.Error(s)
	}
}

// TO-36: what a key may be.
func TestTO36_CheckKey(t *testing.T) {
	for _, ok := range []string{"k", "a b", "K for carol", "0f8fad5b-d9cb-469f-a165-70867728950e", `k"1\`, strings.Repeat("k", MaxKey), "~!"} {
		if err := CheckKey(ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{
		"", " ", "a ", " a", "K → carol", "a\t", "a\n", "a\x00", "a\x7f", "kéy", "ｋ", "к", "k\u200b", "k\u0301", "k\xff", strings.Repeat("k", MaxKey+1), strings.Repeat("k", 1<<20),
	} {
		err := CheckKey(bad)
		if CodeOf(err) != Invalid || err == nil || len(err.Error()) > 300 {
			t.Errorf("%.20q (%d bytes): %.200v", bad, len(bad), err)
		}
	}
}
