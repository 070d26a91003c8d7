package request

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// expand puts the encoded values into the path of a URL, and makes sure that the
// result leads nowhere else, however often somebody on the way decodes it.
func expand(template string, values map[string]string) (string, error) {
	var b strings.Builder
	for rest := template; ; {
		before, after, ok := strings.Cut(rest, "{")
		b.WriteString(before)
		if !ok {
			break
		}
		name, more, ok := strings.Cut(after, "}")
		v, given := values[name]
		if !ok || !given {
			return "", fmt.Errorf("argument for {%.80s} of the path is missing", name)
		}
		b.WriteString(v)
		rest = more
	}
	return b.String(), CheckPath(pathOf(b.String()))
}

// pathOf is what follows the host.
func pathOf(target string) string {
	_, rest, _ := strings.Cut(target, "://")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return ""
}

// maxDecodings bounds how often a path may have been encoded.
const maxDecodings = 4

// CheckPath refuses an encoded path of which some program on the way, decoding it
// once or several times, would make another: by . and .. as segments, by
// backslashes, control characters, or letters that are normalised to those.
func CheckPath(path string) error {
	for segment := range strings.SplitSeq(path, "/") {
		for n := 0; ; n++ {
			if err := checkSegment(segment); err != nil {
				return err
			}
			next, changed := unescape(segment)
			if !changed {
				break
			}
			if n == maxDecodings {
				return errors.New("a part of the path is encoded more often than anybody needs")
			}
			segment = next
		}
	}
	return nil
}

func checkSegment(s string) error {
	for _, form := range []string{s, norm.NFKC.String(s)} {
		for i := range len(form) {
			if c := form[i]; c < ' ' || c == 0x7f || c == '\\' {
				return fmt.Errorf("the path holds the character 0x%02x, which programs read differently", c)
			}
		}
		for part := range strings.SplitSeq(form, "/") {
			name, _, _ := strings.Cut(part, ";")
			if name = strings.Trim(name, " "); name == "." || name == ".." {
				return errors.New("a part of the path is . or .., plainly or encoded, and would lead elsewhere")
			}
		}
	}
	return nil
}

// unescape decodes once what is well encoded in s, and leaves the rest.
func unescape(s string) (decoded string, changed bool) {
	if !strings.Contains(s, "%") {
		return s, false
	}
	if whole, err := url.PathUnescape(s); err == nil {
		return whole, whole != s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := url.PathUnescape(s[i : i+3]); err == nil {
				b = append(b, c...)
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b), string(b) != s
}
