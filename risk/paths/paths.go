// Package paths judges a file path by what is done to it: whether it holds
// secrets, whether what is written there is run later, and whether what stood
// there is lost. It looks at the text alone, so every form that could lead
// somewhere else counts: .., ~, escapes of URLs, network shares, other case,
// other spellings of the same letters.
package paths

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// A Use says what is done to a path.
type Use int

// The uses. A manifest names them reads, creates, appends, writes, overwrites
// and deletes.
const (
	Names      Use = iota // nothing says what is done to it
	Reads                 //
	Creates               // makes what does not exist; fails, or adds, where it does
	Appends               // adds to what stands there
	Overwrites            // what stood there is gone
	Deletes               //
)

// UseOf reads the name of a use. What only "writes" may write over a file.
func UseOf(name string) (Use, bool) {
	use, ok := map[string]Use{
		"": Names, "reads": Reads, "creates": Creates, "appends": Appends, "writes": Overwrites, "overwrites": Overwrites, "deletes": Deletes,
	}[name]
	return use, ok
}

// Judge notes what a use does to a path.
func Judge(l *finding.List, use Use, name string) {
	l.Object(visible(name))
	if use == Names {
		if Secret(name) {
			l.Add(sallyport.Medium, "touches %s, which holds secrets", visible(name))
		}
		return
	}
	if why := unreadable(name); why != "" {
		l.Effect(sallyport.EffectOpaque)
		l.Add(sallyport.Critical, "the path %s", why)
	}
	if use == Reads {
		reads(l, name)
		return
	}
	changes(l, use, name)
}

func reads(l *finding.List, name string) {
	l.Effect(sallyport.EffectRead)
	forms := formsOf(name)
	switch {
	case Secret(name):
		l.Add(sallyport.Medium, "reads %s, which holds secrets", visible(name))
	case share(forms):
		l.Effect(sallyport.EffectNetwork)
		l.Add(sallyport.High, "reads %s, which lies on another machine", visible(name))
	case leaves(forms):
		l.Add(sallyport.Medium, "reads %s, which may lead anywhere", visible(name))
	default:
		l.Add(sallyport.Low, "reads %s", visible(name))
	}
}

func changes(l *finding.List, use Use, name string) {
	l.Effect(sallyport.EffectWrite)
	switch forms := formsOf(name); {
	case share(forms):
		l.Effect(sallyport.EffectNetwork)
		l.Add(sallyport.Critical, "changes %s, which lies on another machine", visible(name))
	case Executed(name):
		l.Effect(sallyport.EffectExecute)
		l.Add(sallyport.Critical, "changes %s, which is run or obeyed later", visible(name))
	case device(forms):
		l.Add(sallyport.Critical, "changes %s, which is a device", visible(name))
	case leaves(forms):
		l.Add(sallyport.Critical, "changes %s, which may lead anywhere", visible(name))
	case Secret(name):
		l.Add(sallyport.High, "changes %s, which holds secrets", visible(name))
	}
	switch use {
	case Creates:
		l.Add(sallyport.High, "makes %s", visible(name))
	case Appends:
		l.Add(sallyport.High, "adds to %s", visible(name))
	case Deletes:
		l.Effect(sallyport.EffectDelete)
		l.Lost("deletes %s: it cannot be brought back", visible(name))
	default:
		l.Effect(sallyport.EffectDelete)
		l.Lost("may write over %s: what stood there cannot be brought back", visible(name))
	}
}

// unreadable says why a path cannot be judged at all.
func unreadable(name string) string {
	switch {
	case name == "":
		return "is empty, so what it leads to is unknown"
	case len(name) > maxPath:
		return "is too long to judge"
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	}
	for _, form := range formsOf(name) {
		if strings.IndexByte(form, 0) >= 0 {
			return "holds a NUL: what follows it may or may not be read"
		}
	}
	if strings.IndexFunc(name, func(r rune) bool { return unicode.IsControl(r) }) >= 0 {
		return "holds a control character"
	}
	return ""
}

const (
	maxPath  = 16 << 10
	maxForms = 4 // rounds of URL escapes
)

// formsOf returns every way in which a program may understand a path, in lower
// case and with slashes: as it is, unescaped, cleaned.
func formsOf(name string) []string {
	if len(name) > maxPath {
		name = name[:maxPath]
	}
	forms := []string{}
	add := func(s string) {
		s = fold(s)
		for _, form := range []string{s, clean(s)} {
			if !slices.Contains(forms, form) {
				forms = append(forms, form)
			}
		}
	}
	add(name)
	for range maxForms {
		next := unescape(name)
		if next == name {
			break
		}
		name = next
		add(name)
	}
	return forms
}

// unescape decodes %2e and the like, and leaves what is no escape as it is.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// fold makes equal what some file system takes for the same name: case, width,
// composition, letters that are not seen, and the dots and blanks at a name's
// end that Windows leaves out.
func fold(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\\', r == '\u2044', r == '\u2215', r == '\u29f8':
			return '/'
		case unicode.Is(unicode.Cf, r), unicode.Is(unicode.Variation_Selector, r):
			return -1
		}
		return r
	}, norm.NFKC.String(s))
	s = strings.ToLower(strings.ToUpper(s)) // ſ is S, and then s
	s = strings.TrimPrefix(s, "file:")
	parts := strings.Split(s, "/")
	for i, p := range parts {
		p, _, _ = strings.Cut(p, "::$") // a stream of NTFS
		if trimmed := strings.TrimRight(p, ". "); trimmed != "" {
			p = trimmed
		}
		parts[i] = p
	}
	return strings.Join(parts, "/")
}

// clean resolves . and .. as text, and keeps what begins with //.
func clean(s string) string {
	if s == "" {
		return s
	}
	c := path.Clean(s)
	if strings.HasPrefix(s, "//") {
		c = "/" + c
	}
	return c
}

// share tells paths on another machine: //server/share, with either slash.
func share(forms []string) bool {
	return slices.ContainsFunc(forms, func(s string) bool {
		if !strings.HasPrefix(s, "//") {
			return strings.Contains(s, "://") && !strings.HasPrefix(s, "file:")
		}
		host, _, _ := strings.Cut(strings.TrimLeft(s, "/"), "/")
		return !strings.HasPrefix(s, "///") && host != "?" && host != "." && host != ""
	})
}

// device tells what lies in /dev, but for the files that can lie there.
func device(forms []string) bool {
	return slices.ContainsFunc(forms, func(s string) bool {
		return strings.HasPrefix(s, "/dev/") && !strings.HasPrefix(s, "/dev/shm/") && s != "/dev/null"
	})
}

// leaves tells paths whose end cannot be known from their text: they climb out
// of their folder, go through a link of the kernel's, or stand for other names.
func leaves(forms []string) bool {
	return slices.ContainsFunc(forms, func(s string) bool {
		if s == ".." || strings.HasPrefix(s, "../") || strings.Contains(s, "/../") || strings.HasSuffix(s, "/..") {
			return true
		}
		if strings.HasPrefix(s, "/proc/") || strings.HasPrefix(s, "/dev/fd/") {
			return true
		}
		for part := range strings.SplitSeq(s, "/") {
			if i := strings.LastIndexByte(part, '~'); i > 0 && i+1 < len(part) && part[i+1] >= '0' && part[i+1] <= '9' {
				return true // PROGRA~1
			}
		}
		return strings.HasPrefix(s, "//?/") || strings.HasPrefix(s, "//./")
	})
}

// visible writes a path so that a person sees all of it.
func visible(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError {
			return '\uFFFD'
		}
		return r
	}, name)
}
