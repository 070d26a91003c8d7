// Package money reads amounts of money exactly and judges what moves them. No
// float is ever made: an amount that two readers could understand differently
// is unreadable, and what cannot be read is critical.
package money

import (
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

const (
	maxDigits = 15  // that a reader with 64-bit floats keeps exactly
	maxZeros  = 18  // that an exponent may add
	maxNames  = 200 // bytes of all recipients; what is longer is cut before it is counted
)

// A Transfer is money that a call moves.
type Transfer struct {
	Path       string // of the amount, a JSON Pointer
	Amount     string // as it is written
	Number     bool   // written as a JSON number, not as text
	Currency   string // as it is written, "" if it is not told
	Recipients []string
	Scale      int  // decimal places that the amount leaves out: 2 for cents
	Reversible bool // the operator says that it can be called back
}

// Judge says what the transfer does.
func Judge(t Transfer) sallyport.Risk {
	var l finding.List
	l.Effect(sallyport.EffectMoney)
	currency, why := Currency(t.Currency)
	value, inline, bad := Parse(t.Amount, t.Number)
	if bad == "" && inline != "" {
		if currency != "" && currency != inline {
			why = fmt.Sprintf("is in %s by one argument and in %s by another", currency, inline)
		}
		currency = inline
	}
	if bad == "" && !t.Number && thousand(t.Amount) && !threeDecimals[currency] {
		bad = "could be thousands or thousandths"
	}
	value = shift(value, t.Scale)
	accounts := make([]string, len(t.Recipients))
	for i, r := range t.Recipients {
		accounts[i] = Account(r)
	}
	to := strings.Join(accounts, ", ")
	shown := strings.TrimSpace(t.Amount + " " + t.Currency)
	for _, problem := range []string{bad, why} {
		if problem != "" {
			l.Effect(sallyport.EffectOpaque)
			l.Add(sallyport.Critical, "the amount %q %s, so how much it moves is unknown", shown, problem)
		}
	}
	l.Part(t.Path, "amount", shown)
	for _, r := range t.Recipients {
		l.Object(r)
		l.Part("", "recipient", r)
	}
	if len(to) > maxNames {
		l.Add(sallyport.Critical, "names recipients at such length that what each gets cannot be counted")
	}
	if bad != "" {
		l.Add(sallyport.Critical, "moves money%s", toward(to))
		return l.Risk()
	}
	l.Amount(sallyport.Amount{Value: value, Currency: currency, Recipient: to})
	what := strings.TrimSpace(value + " " + currency)
	if t.Reversible {
		l.Add(sallyport.High, "moves %s%s; the operator says that it can be called back", what, toward(to))
	} else {
		l.Lost("moves %s%s: money cannot be called back", what, toward(to))
	}
	return l.Risk()
}

func toward(to string) string {
	if to == "" {
		return ""
	}
	return " to " + to
}

// Parse reads an amount. value is an exact decimal without exponent, and
// currency what the text itself names; bad says, in words that follow "the
// amount", why it cannot be read.
func Parse(text string, number bool) (value, currency, bad string) {
	if !number {
		text, currency, bad = cutCurrency(text)
		if bad != "" {
			return "", "", bad
		}
	}
	digits, exponent, bad := plain(text, number)
	if bad != "" {
		return "", "", bad
	}
	return expand(digits, exponent), currency, ""
}

// plain checks a decimal's form and cuts its exponent off, which only a JSON
// number may have.
func plain(text string, number bool) (digits string, exponent int, bad string) {
	if text == "" {
		return "", 0, "is empty"
	}
	if text[0] == '-' {
		return "", 0, "is negative, which would move money the other way"
	}
	mantissa, exp, has := text, "", false
	if number {
		if i := strings.IndexAny(text, "eE"); i >= 0 {
			mantissa, exp, has = text[:i], text[i+1:], true
		}
	}
	whole, frac, point := strings.Cut(mantissa, ".")
	switch {
	case !allDigits(whole) || point && !allDigits(frac):
		return "", 0, "is not a plain decimal number"
	case len(whole) > 1 && whole[0] == '0':
		return "", 0, "begins with a zero, which some readers take for octal"
	}
	if has {
		n, sign := 0, 1
		if exp != "" && (exp[0] == '-' || exp[0] == '+') {
			if exp[0] == '-' {
				sign = -1
			}
			exp = exp[1:]
		}
		if !allDigits(exp) || len(exp) > 3 {
			return "", 0, "has an exponent that is too large"
		}
		for _, c := range exp {
			n = 10*n + int(c-'0')
		}
		if n > maxZeros {
			return "", 0, "has an exponent that is too large"
		}
		exponent = sign * n
	}
	if len(strings.TrimLeft(whole+strings.TrimRight(frac, "0"), "0")) > maxDigits {
		return "", 0, "has more digits than every reader keeps"
	}
	return mantissa, exponent, ""
}

func allDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// expand writes digits × 10^exponent without an exponent; trailing zeros stay as
// they are written.
func expand(digits string, exponent int) string {
	whole, frac, _ := strings.Cut(digits, ".")
	if exponent > 0 {
		frac += strings.Repeat("0", max(0, exponent-len(frac)))
		whole, frac = whole+frac[:exponent], frac[exponent:]
	} else if exponent < 0 {
		whole = strings.Repeat("0", max(0, 1-exponent-len(whole))) + whole
		frac = whole[len(whole)+exponent:] + frac
		whole = whole[:len(whole)+exponent]
	}
	whole = strings.TrimLeft(whole, "0")
	if whole == "" {
		whole = "0"
	}
	if frac == "" {
		return whole
	}
	return whole + "." + frac
}

func shift(value string, scale int) string {
	if value == "" || scale == 0 {
		return value
	}
	return expand(value, -scale)
}

// thousand tells whether a text is digits, a point and three digits: 1.000.
func thousand(text string) bool {
	digits := strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz ")
	whole, frac, ok := strings.Cut(digits, ".")
	return ok && len(frac) == 3 && len(whole) <= 3 && whole != "0"
}

// threeDecimals are the currencies of a thousand parts. (ISO 4217)
var threeDecimals = map[string]bool{"BHD": true, "IQD": true, "JOD": true, "KWD": true, "LYD": true, "OMR": true, "TND": true}

// cutCurrency splits "10.00 EUR" and "EUR 10.00".
func cutCurrency(text string) (digits, currency, bad string) {
	before, after, ok := strings.Cut(text, " ")
	if !ok {
		return text, "", ""
	}
	code := after
	digits = before
	if !allDigits(strings.ReplaceAll(digits, ".", "")) {
		digits, code = after, before
	}
	currency, bad = Currency(code)
	if bad != "" || currency == "" || strings.Contains(digits, " ") {
		return "", "", "is not a plain decimal number"
	}
	return digits, currency, ""
}

// Currency reads a code of three to five letters; "" stays "".
func Currency(code string) (canonical, bad string) {
	if code == "" {
		return "", ""
	}
	if len(code) < 3 || len(code) > 5 {
		return "", "is in a currency that is not a code such as EUR"
	}
	for i := range len(code) {
		if c := code[i] | 0x20; c < 'a' || c > 'z' {
			return "", "is in a currency that is not a code such as EUR"
		}
	}
	return strings.ToUpper(code), ""
}

// Known tells whether a code, in capitals, is a currency. (ISO 4217, active
// codes of November 2026, and the most traded coins)
func Known(code string) bool { return known[code] }

var known = func() map[string]bool {
	out := map[string]bool{}
	for _, c := range strings.Fields(`AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLF CLP
		CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY
		KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB
		PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX
		USD UYU UZS VED VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWG XAU XAG USDT USDC BTC ETH SOL XRP BNB DOGE LTC DAI`) {
		out[c] = true
	}
	return out
}()

// Less compares two decimals that Parse made; "" is less than any.
func Less(a, b string) bool {
	if a == "" || b == "" {
		return a == "" && b != ""
	}
	wa, fa, _ := strings.Cut(a, ".")
	wb, fb, _ := strings.Cut(b, ".")
	if len(wa) != len(wb) {
		return len(wa) < len(wb)
	}
	if wa != wb {
		return wa < wb
	}
	return strings.TrimRight(fa, "0") < strings.TrimRight(fb, "0")
}
