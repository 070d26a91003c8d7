package money_test

import (
	"math/big"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/money"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		text            string
		number          bool
		value, currency string // "" if it must not be read
	}{
		{"82000", true, "82000", ""}, {"82000.0", true, "82000.0", ""}, {"8.2e4", true, "82000", ""}, {"1e3", true, "1000", ""},
		{"1E+3", true, "1000", ""}, {"15e-1", true, "1.5", ""}, {"0.10", true, "0.10", ""}, {"0", true, "0", ""}, {"5e-3", true, "0.005", ""},
		{"10.00", false, "10.00", ""}, {"10.00 EUR", false, "10.00", "EUR"}, {"eur 10", false, "10", "EUR"},
		{"1e3", false, "", ""}, {"1,000", false, "", ""}, {"1.000,00", false, "", ""}, {"１０００", false, "", ""}, {"-5", true, "", ""},
		{"-5", false, "", ""}, {"+5", false, "", ""}, {"NaN", false, "", ""}, {"Infinity", false, "", ""}, {"1e400", true, "", ""},
		{"1e999999999999", true, "", ""}, {"", false, "", ""}, {" 5", false, "", ""}, {"5 ", false, "", ""}, {"0x10", false, "", ""},
		{"1_000", false, "", ""}, {"0100", false, "", ""}, {".5", false, "", ""}, {"5.", false, "", ""}, {"€5", false, "", ""},
		{"9007199254740993", true, "", ""}, {"1000000000000000000", true, "1000000000000000000", ""}, {"5 000", false, "", ""}, {"5\u00a0000", false, "", ""},
		{"10 EUR USD", false, "", ""}, {"10\n", false, "", ""}, {"٥", false, "", ""},
	} {
		value, currency, bad := money.Parse(tt.text, tt.number)
		if tt.text == "1000000000000000000" && value == "" {
			continue // more digits than are kept: refusing is right, too
		}
		if value != tt.value || currency != tt.currency || (bad == "") != (tt.value != "") {
			t.Errorf("%q (number %v) = %q %q, %q; want %q %q", tt.text, tt.number, value, currency, bad, tt.value, tt.currency)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		t            money.Transfer
		level        string
		irreversible bool
		value        string
	}{
		{money.Transfer{Amount: "10", Number: true, Currency: "eur"}, "critical", true, "10"},
		{money.Transfer{Amount: "10", Number: true, Reversible: true}, "high", false, "10"},
		{money.Transfer{Amount: "12345", Number: true, Scale: 2, Reversible: true}, "high", false, "123.45"},
		{money.Transfer{Amount: "5", Number: true, Scale: 2, Reversible: true}, "high", false, "0.05"},
		{money.Transfer{Amount: "1,000", Reversible: true}, "critical", false, ""},
		{money.Transfer{Amount: "1.000", Reversible: true}, "critical", false, ""},
		{money.Transfer{Amount: "1.000", Currency: "KWD", Reversible: true}, "high", false, "1.000"},
		{money.Transfer{Amount: "1.000", Number: true, Reversible: true}, "high", false, "1.000"},
		{money.Transfer{Amount: "10 USD", Currency: "EUR", Reversible: true}, "critical", false, "10"},
		{money.Transfer{Amount: "10", Number: true, Currency: "€", Reversible: true}, "critical", false, "10"},
	} {
		r := money.Judge(tt.t)
		if r.Level.String() != tt.level || r.Irreversible != tt.irreversible {
			t.Errorf("%+v is %s, irreversible %v: %q", tt.t, r.Level, r.Irreversible, r.Reasons)
		}
		if got := len(r.Amounts); (got == 1) != (tt.value != "") || got == 1 && r.Amounts[0].Value != tt.value {
			t.Errorf("%+v moves %v, want %q", tt.t, r.Amounts, tt.value)
		}
		if !strings.Contains(strings.Join(r.Effects, " "), sallyport.EffectMoney) {
			t.Errorf("%+v has effects %v", tt.t, r.Effects)
		}
	}
}

func TestAccounts(t *testing.T) {
	for s, want := range map[string]bool{
		"DE89 3704 0044 0532 0130 00": true, "GB82WEST12345698765432": true, "DE89 3704 0044 0532 0130 01": false,
		"0x52908400098527886E0F7030069857D2E4169EE7": true, "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4": true, "hello": false, "0x1234": false,
	} {
		if money.IsAccount(s) != want {
			t.Errorf("%q: %v, want %v", s, !want, want)
		}
	}
}

// However an account is written, it is one recipient.
func TestOneAccountHasOneName(t *testing.T) {
	const iban, wallet = "DE89370400440532013000", "0x52908400098527886e0f7030069857d2e4169ee7"
	for s, want := range map[string]string{
		iban: iban, "DE89 3704 0044 0532 0130 00": iban, "de89370400440532013000": iban, "iban:DE89370400440532013000": iban, "IBAN DE89 3704 0044 0532 0130 00": iban,
		" Iban: de89-3704-0044-0532-0130-00 ": iban, "urn:iban:DE89370400440532013000": iban, "DE89\u00a03704\u00a00044\u00a00532\u00a00130\u00a000": iban,
		"0x52908400098527886E0F7030069857D2E4169EE7": wallet,
		"iban:DE89370400440532013001":                "iban:DE89370400440532013001", "acme": "acme", "Iban Ltd": "Iban Ltd",
	} {
		if got := money.Account(s); got != want {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
		r := money.Judge(money.Transfer{Amount: "10.00", Currency: "EUR", Recipients: []string{s}})
		if len(r.Amounts) != 1 || r.Amounts[0].Recipient != want {
			t.Errorf("a transfer to %q counts for %+v, want %q", s, r.Amounts, want)
		}
	}
}

// What is read is exactly what JSON's own grammar says the number is.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1", "1e3", "0.10", "1e-9", "12.5E1", "-1", "1,000", "00", "1e18", "999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		value, _, bad := money.Parse(s, true)
		if bad != "" {
			return
		}
		want, ok := new(big.Rat).SetString(s)
		got, ok2 := new(big.Rat).SetString(value)
		if !ok || !ok2 || want.Cmp(got) != 0 || strings.ContainsAny(value, "eE+-") {
			t.Fatalf("%q is read as %q", s, value)
		}
	})
}
