package money

import "strings"

// IsAccount tells whether a text is the number of an account by its own form:
// an IBAN with its check digits, or the address of a wallet.
func IsAccount(s string) bool { return isIBAN(s) || isWallet(s) }

// isIBAN checks an IBAN's form and check digits. (ISO 13616)
func isIBAN(s string) bool {
	s = strings.ToUpper(strings.ReplaceAll(s, " ", ""))
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
