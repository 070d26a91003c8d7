// Package link takes the harm out of what a client would load or lead to because
// a text says so: remote images, in Markdown and HTML, and links that carry data
// away or hide where they go. What is harmless stays byte for byte; what is not
// is still there to be read, and nothing follows it.
package link

import (
	"bytes"
	"html"
	"net/url"
	"slices"
	"strings"
)

// A Filter makes texts harmless that are shown together.
type Filter struct {
	// Images are hosts whose images may be loaded; "*" stands for all, and a
	// name that begins with "*." for those below it.
	Images []string

	defs  map[string]string // references of Markdown, by label
	Hosts []string          // of what was made harmless, each once, in order
}

// maxHosts bounds how many hosts are named.
const maxHosts = 8

// Might reports whether anything in JSON could be of concern: a cheap test. Any
// sign may be written as an escape.
func Might(raw []byte) bool {
	for _, sign := range [...]string{"![", "](", "<", "://", `:\/`, `\u`} {
		if bytes.Contains(raw, []byte(sign)) {
			return true
		}
	}
	return false
}

// maxLabel is the longest name of a reference that Markdown knows.
const maxLabel = 1000

// Learn takes in the references to elsewhere that a text defines, or may define, for
// all texts.
func (f *Filter) Learn(text string) {
	for at := 0; ; {
		i := strings.Index(text[at:], "]:")
		if i < 0 {
			return
		}
		end := at + i
		at = end + 2
		from := max(0, end-maxLabel)
		open := strings.LastIndexByte(text[from:end], '[')
		for open > 0 && text[from+open-1] == '\\' {
			open = strings.LastIndexByte(text[from:from+open], '[')
		}
		to := target(strings.TrimLeft(text[at:], " \t\r\n>"))
		if open < 0 || !f.remote(to) {
			continue
		}
		if f.defs == nil {
			f.defs = map[string]string{}
		}
		f.defs[label(text[from+open+1:end])] = to
	}
}

// label is the one form of a reference's name.
func label(s string) string {
	return strings.ToLower(strings.Join(strings.Fields(folded.Replace(s)), " "))
}

var folded = strings.NewReplacer("\n>", " ", "ß", "ss", "ẞ", "ss")

// Clean returns a text in which nothing is loaded and no link carries data.
func (f *Filter) Clean(text string) string {
	if !strings.ContainsAny(text, "![<:") {
		return text
	}
	for _, end := range readings {
		text = f.markdown(text, brackets(blanked(text, end)))
	}
	return f.links(f.tags(text))
}

// markdown finds images, and links whose address is a program. Of an address it
// reads only what says where it leads, so that no text takes long.
func (f *Filter) markdown(text string, all []pair) string {
	if !strings.Contains(text, "![") && !strings.Contains(text, "](") {
		return text
	}
	var out strings.Builder
	last := 0
	for _, b := range all {
		i, end := b.open, b.end
		if end == 0 || i <= last && last > 0 {
			continue
		}
		image, inline := i > 0 && text[i-1] == '!', strings.HasPrefix(text[end+1:], "(")
		at := end + 2
		to := ""
		switch {
		case inline:
			at += len(text[at:]) - len(strings.TrimLeft(text[at:], " \t\r\n"))
			to = target(text[at:])
		case image:
			to, at = f.reference(text, i, end, all)
		}
		switch {
		case image && f.remote(to):
			f.note(to)
			out.WriteString(text[last:i-1] + "[image not loaded: " + plainly(text[i+1:end]) + "]")
			if last = at; inline {
				out.WriteString(" (")
				last = f.defanged(&out, text, at)
			}
		case !image && inline && runs(to):
			f.note(to)
			out.WriteString(text[last:i] + text[i+1:end] + " (link left out: ")
			last = f.defanged(&out, text, at)
		}
	}
	if last == 0 {
		return text
	}
	return out.String() + text[last:]
}

// defanged writes the beginning of the address at i, so that nothing takes it for
// one, and returns where it left off.
func (f *Filter) defanged(out *strings.Builder, text string, i int) int {
	end := i + len(target(text[i:]))
	out.WriteString(defang(text[i:end]))
	return end
}

// plainly is a label that makes no link of what follows it.
func plainly(s string) string {
	return strings.NewReplacer("[", "(", "]", ")").Replace(s[:min(len(s), maxLabel)])
}

// A pair of brackets. end is 0 if nothing closes it.
type pair struct{ open, end int }

// brackets are those of a text, each closed within its paragraph.
func brackets(text string) (all []pair) {
	var open []int // in all
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '[':
			open, all = append(open, len(all)), append(all, pair{open: i})
		case ']':
			if n := len(open); n > 0 {
				all[open[n-1]].end = i
				open = open[:n-1]
			}
		case '\n':
			if i+1 < len(text) && text[i+1] == '\n' {
				open = open[:0]
			}
		}
	}
	return all
}

// maxTarget bounds how much of an address is read.
const maxTarget = 4 << 10

// target is the beginning of an address, with all that says where it leads. What
// clients pass over within it is part of it.
func target(s string) string {
	s = s[:min(len(s), maxTarget)]
	if i := strings.IndexAny(s, " )["); i >= 0 {
		s = s[:i]
	}
	return s
}

// reference reads what an image without an address of its own refers to.
func (f *Filter) reference(text string, open, end int, all []pair) (to string, after int) {
	name, after := text[open+1:end], end+1
	if i, ok := slices.BinarySearchFunc(all, after, func(p pair, at int) int { return p.open - at }); ok && all[i].end > 0 {
		if inner := text[after+1 : all[i].end]; inner != "" {
			name = inner
		}
		after = all[i].end + 1
	}
	if len(name) > maxLabel {
		return "", after
	}
	return f.defs[label(name)], after
}

// settle decodes an address as a client would: entities, escapes, blanks and
// control characters that are passed over, an encoded scheme.
func settle(s string) string {
	s = strings.TrimLeft(s[:min(len(s), maxTarget)], " \t\r\n<")
	for range 3 {
		s = html.UnescapeString(s)
	}
	s = strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0xad || r >= 0x200b && r <= 0x200f || r == 0xfeff {
			return -1
		}
		return r
	}, written.Replace(s))
	for range 3 {
		head, tail := s, ""
		if i := strings.IndexAny(s, "?#"); i >= 0 {
			head, tail = s[:i], s[i:]
		}
		plain, err := url.PathUnescape(head)
		if err != nil || plain == head {
			break
		}
		s = plain + tail
	}
	return strings.ReplaceAll(s, `\`, "/")
}

// written are signs as they stand in JSON.
var written = strings.NewReplacer(`\n`, "", `\t`, "", `\r`, "", `\/`, "/")

// remote reports whether an address leads to another machine that is not allowed.
func (f *Filter) remote(address string) bool {
	s := settle(address)
	host, ok := hostOf(s)
	if !ok {
		return false
	}
	return !slices.ContainsFunc(f.Images, func(allowed string) bool {
		below, any := strings.CutPrefix(allowed, "*")
		return strings.EqualFold(allowed, host) || any && strings.HasSuffix(strings.ToLower(host), strings.ToLower(below))
	})
}

// hostOf is the host of an absolute or protocol-relative address; ok is false for
// one that stays where it is, or carries its content in itself.
func hostOf(s string) (host string, ok bool) {
	scheme, rest, found := strings.Cut(s, ":")
	switch {
	case strings.HasPrefix(s, "//"):
		rest = s
	case !found || strings.ContainsAny(scheme, "/?#") || len(scheme) < 2:
		return "", false
	case !strings.HasPrefix(rest, "//") && !slices.Contains([]string{"http", "https", "ftp", "ws", "wss", "file", "smb"}, strings.ToLower(scheme)):
		return "", false
	}
	rest = strings.TrimLeft(rest, "/")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && !strings.HasSuffix(rest, "]") {
		rest = rest[:i]
	}
	return strings.ToLower(rest), true
}

// runs reports whether an address is a program, or a page in itself.
func runs(address string) bool {
	s := strings.ToLower(settle(address))
	return strings.HasPrefix(s, "javascript:") || strings.HasPrefix(s, "vbscript:") ||
		strings.HasPrefix(s, "data:text/html") || strings.HasPrefix(s, "data:application/xhtml") || strings.HasPrefix(s, "data:image/svg")
}

func (f *Filter) note(address string) {
	host, ok := hostOf(settle(address))
	if !ok || host == "" {
		host = "no host"
	}
	if host = host[:min(len(host), 100)]; len(f.Hosts) < maxHosts && !slices.Contains(f.Hosts, host) {
		f.Hosts = append(f.Hosts, host)
	}
}

// defang writes an address so that nothing takes it for one.
func defang(s string) string {
	low := strings.ToLower(s)
	for i := strings.Index(low, "http"); i >= 0; {
		if rest := low[i+4:]; strings.HasPrefix(rest, "://") || strings.HasPrefix(rest, "s://") || strings.HasPrefix(rest, `:\/\/`) || strings.HasPrefix(rest, `s:\/\/`) {
			s = s[:i+1] + "xx" + s[i+3:]
			low = strings.ToLower(s)
		}
		next := strings.Index(low[i+4:], "http")
		if next < 0 {
			break
		}
		i += 4 + next
	}
	if trimmed := strings.TrimLeft(s, " <"); strings.HasPrefix(trimmed, "//") || runs(trimmed) {
		s = strings.Replace(strings.Replace(s, "//", "[//]", 1), ":", "[:]", 1)
	}
	return s
}
