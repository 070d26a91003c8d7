package redact

// PII says which personal data is masked. Numbers are looked for in text only:
// a JSON number stays exact.
type PII struct {
	Email bool
	SSN   bool // US social security numbers, written 123-45-6789
	Card  bool // payment cards: a known issuer's prefix and length, and Luhn
}

func (p PII) spans(s string, spans []span) []span {
	if p == (PII{}) {
		return spans
	}
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '@' && p.Email:
			if start, end := email(s, i); start < end {
				spans = append(spans, span{start: start, end: end, name: "email", rank: rankOwn})
				i = end
				continue
			}
		case c >= '0' && c <= '9':
			end, name := p.number(s, i)
			if name != "" {
				spans = append(spans, span{start: i, end: end, name: name, rank: rankOwn})
			}
			i = end
			continue
		}
		i++
	}
	return spans
}

// maxCard is the longest card number; longer runs of digits are something else.
const maxCard = 19

// number judges the number that starts with the digit at i; single spaces or
// hyphens may divide it into groups. It returns the end of the number, or of
// its first group if it is nothing to mask.
func (p PII) number(s string, i int) (end int, name string) {
	first := i
	for first < len(s) && s[first] >= '0' && s[first] <= '9' {
		first++
	}
	if i > 0 && (wordByte(s[i-1]) || s[i-1] == '.') {
		return first, ""
	}
	if p.SSN && i+11 <= len(s) && edge(s, i+11) && ssn(s[i:i+11]) {
		return i + 11, "social security number"
	}
	if !p.Card {
		return first, ""
	}
	var buf [maxCard]byte
	number := buf[:0]
	for j := i; j < len(s) && len(number) < maxCard; j++ {
		switch c := s[j]; {
		case c >= '0' && c <= '9':
			number = append(number, c-'0')
			if edge(s, j+1) && card(number) {
				return j + 1, "payment card"
			}
		case c == ' ' || c == '-':
			if s[j-1] < '0' {
				return first, "" // two separators in a row
			}
		default:
			return first, ""
		}
	}
	return first, ""
}

// edge reports whether a number may end before byte i: no letter, digit or
// fraction follows.
func edge(s string, i int) bool {
	if i >= len(s) {
		return true
	}
	return !wordByte(s[i]) && !(s[i] == '.' && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9')
}

// ssn checks the form and the ranges that were never issued.
func ssn(s string) bool {
	if len(s) != 11 || s[3] != '-' || s[6] != '-' {
		return false
	}
	area, group, serial := s[:3], s[4:6], s[7:]
	return digits(area) && digits(group) && digits(serial) &&
		area != "000" && area != "666" && area[0] != '9' && group != "00" && serial != "0000"
}

// card checks issuer, length and Luhn's sum.
func card(d []byte) bool {
	if len(d) < 13 || len(d) > maxCard || !issuer(d) {
		return false
	}
	sum := 0
	for i := range d {
		n := int(d[len(d)-1-i])
		if i%2 == 1 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}

func issuer(d []byte) bool {
	two := int(d[0])*10 + int(d[1])
	four := two*100 + int(d[2])*10 + int(d[3])
	switch n := len(d); {
	case d[0] == 4:
		return n == 13 || n == 16 || n == 19
	case two >= 51 && two <= 55, four >= 2221 && four <= 2720: // Mastercard
		return n == 16
	case two == 34, two == 37: // American Express
		return n == 15
	case four == 6011, two == 65, four >= 6440 && four <= 6499: // Discover
		return n == 16 || n == 19
	case two == 36, two == 38, four >= 3000 && four <= 3059: // Diners
		return n == 14
	case four >= 3528 && four <= 3589: // JCB
		return n == 16
	case two == 62: // UnionPay
		return n >= 16
	}
	return false
}

const maxEmail = 128

// email finds the address around the @ at i.
func email(s string, i int) (start, end int) {
	start = i
	for start > 0 && i-start < maxEmail && (wordByte(s[start-1]) || s[start-1] == '.' || s[start-1] == '+' || s[start-1] == '-' || s[start-1] == '%') {
		start--
	}
	end = i + 1
	dot := 0
	for end < len(s) && end-i < maxEmail && (wordByte(s[end]) && s[end] != '_' || s[end] == '.' || s[end] == '-') {
		if s[end] == '.' {
			dot = end
		}
		end++
	}
	for end > i+1 && (s[end-1] == '.' || s[end-1] == '-') {
		end--
	}
	if dot >= end-1 { // the last dot was trimmed: look for one before it
		dot = 0
		for j := end - 1; j > i; j-- {
			if s[j] == '.' {
				dot = j
				break
			}
		}
	}
	if start == i || dot == 0 || dot == i+1 || end-dot < 3 || digits(s[dot+1:end]) {
		return 0, 0
	}
	return start, end
}
