package link

import (
	"html"
	"regexp"
	"strconv"
	"strings"
)

// tags finds HTML elements that load something, or that run, and shows them as
// text: their first sign is written as an entity.
func (f *Filter) tags(text string) string {
	var out strings.Builder
	last, small := 0, ""
	missing := map[string]bool{} // elements that nothing closes from here on
	for i := strings.IndexByte(text, '<'); i >= 0 && i+1 < len(text); i++ {
		if text[i] != '<' || !letter(text[i+1]) {
			continue
		}
		tag := element(text[i:])
		end := i + tag.size
		raw := tag.name == "style" || tag.name == "script"
		if raw {
			if small == "" {
				small = strings.ToLower(text)
			}
			body := text[end:]
			if !missing[tag.name] && len(small) == len(text) {
				if j := strings.Index(small[end:], "</"+tag.name); j >= 0 {
					body = text[end : end+j]
				} else {
					missing[tag.name] = true
				}
			}
			tag.attributes, end = append(tag.attributes, attribute{"style", body}), end+len(body)
		}
		address, harmful := f.loads(tag)
		switch {
		case harmful:
			f.note(address)
			out.WriteString(text[last:i] + "&lt;" + defang(text[i+1:end]))
			last, i = end, end-1
		case raw:
			i = end - 1 // what is in it is no element
		}
	}
	if last == 0 {
		return text
	}
	return out.String() + text[last:]
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

type attribute struct{ name, value string }

type tag struct {
	name       string
	attributes []attribute
	size       int
}

// Bounds on one element. One with more attributes is shown as text, whatever they
// are.
const (
	maxTag        = 64 << 10
	maxAttributes = 64
)

// element reads an opening tag as browsers do: what does not end is one, too.
func element(s string) tag {
	s = s[:min(len(s), maxTag)]
	i := 1
	for i < len(s) && (letter(s[i]) || s[i] >= '0' && s[i] <= '9' || s[i] == ':' || s[i] == '-') {
		i++
	}
	t := tag{name: strings.ToLower(s[1:i])}
	for i < len(s) && len(t.attributes) <= maxAttributes {
		switch c := s[i]; {
		case c == '>':
			t.size = i + 1
			return t
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '/' || c == '\\' || c == '"' || c == '\'':
			i++
			continue
		}
		from := i
		for i < len(s) && strings.IndexByte(" \t\n\r\f/>=", s[i]) < 0 {
			i++
		}
		a := attribute{name: strings.ToLower(s[from:max(i, from)])}
		for i < len(s) && strings.IndexByte(" \t\n\r\f", s[i]) >= 0 {
			i++
		}
		if i < len(s) && s[i] == '=' {
			a.value, i = value(s, i+1)
		} else if i == from {
			i++
		}
		t.attributes = append(t.attributes, a)
	}
	t.size = i
	return t
}

// value reads an attribute's value at i. In a JSON text its quotes are escaped.
func value(s string, i int) (string, int) {
	for i < len(s) && strings.IndexByte(" \t\n\r\f", s[i]) >= 0 {
		i++
	}
	for _, quote := range []string{`\"`, `\'`, `"`, `'`} {
		if strings.HasPrefix(s[i:], quote) {
			from := i + len(quote)
			if j := strings.Index(s[from:], quote); j >= 0 {
				return s[from : from+j], from + j + len(quote)
			}
			break // it does not end: no quote to whoever reads on
		}
	}
	from := i
	for i < len(s) && strings.IndexByte(" \t\n\r\f>", s[i]) < 0 {
		i++
	}
	return s[from:i], i
}

// loading are the attributes whose address a client fetches by itself.
var loading = map[string]bool{
	"src": true, "srcset": true, "imagesrcset": true, "poster": true, "background": true, "lowsrc": true, "dynsrc": true, "data": true, "code": true,
	"archive": true, "ping": true, "manifest": true, "icon": true, "longdesc": true, "profile": true, "classid": true, "codebase": true,
}

// loads reports whether an element has a client fetch something from elsewhere, or
// run something, and names the address.
func (f *Filter) loads(t tag) (address string, ok bool) {
	if len(t.attributes) > maxAttributes {
		return "", true
	}
	for _, a := range t.attributes {
		switch {
		case a.name == "srcdoc", strings.HasPrefix(a.name, "on") && len(a.name) > 4 && a.value != "" && a.value[0] != '{' && strings.Contains(a.value, "//"):
			return a.value, true // in braces it is source code
		case a.name == "srcset" || a.name == "imagesrcset":
			for part := range strings.SplitSeq(a.value, ",") {
				if at, _, _ := strings.Cut(strings.TrimSpace(part), " "); f.remote(at) {
					return at, true
				}
			}
		case loading[a.name] && f.remote(a.value):
			return a.value, true
		case (a.name == "href" || a.name == "xlink:href" || a.name == "action" || a.name == "formaction" || loading[a.name]) && runs(a.value):
			return a.value, true
		case (a.name == "href" || a.name == "xlink:href") && fetching[t.name] && f.remote(a.value):
			return a.value, true
		case (a.name == "href" || a.name == "xlink:href") && carries(settle(a.value)) && !plain(a.value):
			return a.value, true
		case a.name == "content" && t.name == "meta":
			if _, to, refresh := strings.Cut(strings.ToLower(a.value), "url="); refresh && f.remote(strings.Trim(to, `"' `)) {
				return to, true
			}
		case a.name == "style" || presentation[a.name]:
			if at, remote := f.styled(a.value); remote {
				return at, true
			}
		}
	}
	return "", false
}

// fetching are the elements whose href a client fetches by itself.
var fetching = map[string]bool{"link": true, "base": true, "image": true, "use": true, "feimage": true, "script": true, "pattern": true, "mpath": true}

// presentation are the attributes of SVG that take url(…).
var presentation = map[string]bool{"fill": true, "stroke": true, "filter": true, "mask": true, "clip-path": true, "marker-start": true, "marker-end": true, "cursor": true}

// plain reports whether an address is written as it is: then links finds it.
func plain(s string) bool {
	s = strings.ToLower(s)
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// styled finds an address that a style sheet fetches.
func (f *Filter) styled(css string) (address string, ok bool) {
	s := settle(unescapeCSS(html.UnescapeString(css)))
	low := strings.ToLower(s)
	for _, word := range []string{"url(", "@import", "image-set(", "image(", "src("} {
		for rest, at := low, 0; ; {
			i := strings.Index(rest, word)
			if i < 0 {
				break
			}
			at += i + len(word)
			rest = low[at:]
			to := strings.TrimLeft(s[at:], ` "'(`)
			if j := strings.IndexAny(to, `"')`); j >= 0 {
				to = to[:j]
			}
			if to = strings.TrimPrefix(strings.TrimPrefix(to, "url("), `"`); f.remote(to) {
				return to, true
			}
		}
	}
	return "", false
}

// unescapeCSS decodes the escapes of style sheets: \75 is u.
func unescapeCSS(s string) string {
	return escapeCSS.ReplaceAllStringFunc(s, func(e string) string {
		n, err := strconv.ParseUint(strings.Trim(e, "\\ "), 16, 32)
		if err != nil || n < 0x20 || n > 0x7e {
			return e
		}
		return string(rune(n))
	})
}

var escapeCSS = regexp.MustCompile(`\\+[0-9a-fA-F]{1,6} ?`)
