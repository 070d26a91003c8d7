package money

import (
	"regexp"
	"strings"
	"unicode"
)

// IsAccount tells whether a text is the number of an account by its own form:
// an IBAN with its check digits, or the address of a wallet.
func IsAccount(s string) bool { _, ok := account(s); return ok }

// Account writes the number of an account in the one way that stands for all in
// which it may be given: an IBAN with or without its name in front, in blocks, in
// small letters. Any other text stays as it is.
func Account(s string) string {
	if plain, ok := account(s); ok {
		return plain
	}
	return s
}

var named = regexp.MustCompile(`(?i)^(?:urn:)?iban[\s:=.-]*`)

func account(s string) (plain string, ok bool) {
	plain = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '-' || r == '.' {
			return -1
		}
		return unicode.ToUpper(r)
	}, named.ReplaceAllString(strings.TrimSpace(s), ""))
	if isIBAN(plain) {
		return plain, true
	}
	if t := strings.TrimSpace(s); isWallet(t) {
		if strings.HasPrefix(t, "0x") {
			t = strings.ToLower(t) // capitals are but a checksum (EIP-55)
		}
		return t, true
	}
	return s, false
}

// isIBAN checks an IBAN's form and check digits, written without blanks. (ISO 13616)
func isIBAN(s string) bool {
	if len(s) < 15 || len(s) > 34 || !letters(s[:2]) || !allDigits(s[2:4]) {
		return false
	}
	rest := 0
	for _, c := range s[4:] + s[:4] {
		switch {
		case c >= '0' && c <= '9':
			rest = (10*rest + int(c-'0')) % 97
		case c >= 'A' && c <= 'Z':
			rest = (100*rest + int(c-'A') + 10) % 97
		default:
			return false
		}
	}
	return rest == 1
}

// isWallet knows the addresses of Ethereum and Bitcoin by form, not by check
// digits: a mistyped one moves money, too.
func isWallet(s string) bool {
	if len(s) == 42 && strings.HasPrefix(s, "0x") {
		return strings.Trim(s[2:], "0123456789abcdefABCDEF") == ""
	}
	if strings.HasPrefix(s, "bc1") && len(s) >= 42 && len(s) <= 62 {
		return strings.Trim(s[3:], "qpzry9x8gf2tvdw0s3jn54khce6mua7l") == ""
	}
	return false
}

func letters(s string) bool {
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			return false
		}
	}
	return true
}
