package foreign

// standard turns JSON as editors take it in settings into JSON: comments and
// commas before a closing bracket become spaces, so that places stay the same.
func standard(src []byte) []byte {
	out := append([]byte{}, src...)
	comma := -1 // place of a comma after which nothing but space has come
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
		case c == '/' && i+1 < len(out) && out[i+1] == '/':
			for ; i < len(out) && out[i] != '\n'; i++ {
				out[i] = ' '
			}
		case c == '/' && i+1 < len(out) && out[i+1] == '*':
			i = blank(out, i)
		case c == ',':
			comma = i
		case c == ']' || c == '}':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			comma = -1
		}
	}
	return out
}

// blank overwrites a comment and returns the place of its last byte. One that
// does not end stays, so that the text is refused.
func blank(out []byte, from int) int {
	for i := from + 2; i+1 < len(out); i++ {
		if out[i] == '*' && out[i+1] == '/' {
			for j := from; j <= i+1; j++ {
				if out[j] != '\n' {
					out[j] = ' '
				}
			}
			return i + 1
		}
	}
	return len(out)
}
