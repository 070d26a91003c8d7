package approval

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact/lookalike"
)

// run is how many blanks in a row are counted instead of shown.
const run = 12

// short is s on one line of at most about most characters: its beginning and
// its end, everything visible, long runs of blanks counted. left is how many
// characters are not shown.
func short(s string, most int) (out string, left int) {
	s = counted(s)
	if n := utf8.RuneCountInString(s); n > most {
		r := []rune(s)
		head, tail := most*2/3, most/3
		left = n - head - tail
		return Visible(string(r[:head])) + fmt.Sprintf("⟦%d characters more⟧", left) + Visible(string(r[n-tail:])), left
	}
	return Visible(s), 0
}

// counted writes long runs of blanks as their number. The brackets that it uses
// are escaped where the text has them itself.
func counted(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == '⟦' || r == '⟧' {
			escape(&b, r)
			i += n
			continue
		}
		if !unicode.IsSpace(r) && shows(r) || r == utf8.RuneError {
			b.WriteString(s[i : i+n])
			i += n
			continue
		}
		end, count := i, 0
		for end < len(s) {
			next, size := utf8.DecodeRuneInString(s[end:])
			if next != r {
				break
			}
			end, count = end+size, count+1
		}
		if count >= run {
			fmt.Fprintf(&b, "⟦%d × U+%04X⟧", count, r)
		} else {
			b.WriteString(s[i:end])
		}
		i = end
	}
	return b.String()
}

// arguments lays the arguments out: exactly, where that is short and plain.
func (v *View) arguments(args json.RawMessage) {
	whole := PrettyJSON(args)
	texts := longTexts(args)
	n := strings.Count(whole, "\n")
	for _, t := range texts {
		n += strings.Count(t.text, "\n")
	}
	if len(whole) <= maxWhole && n <= maxLines && !padding.MatchString(whole) {
		v.Arguments = whole
		for _, t := range texts {
			v.Arguments += fmt.Sprintf("%s, line by line\n%s", Visible(t.path), indent(visibleLines(t.text), "| "))
		}
		return
	}
	var b strings.Builder
	rows := leaves(args)
	lists := map[string]int{}
	for i, l := range rows {
		if i >= maxLines {
			v.omit(fmt.Sprintf("%d more values", len(rows)-i))
			break
		}
		if l.list != "" {
			if lists[l.list]++; lists[l.list] > maxItems {
				continue
			}
		}
		fmt.Fprintf(&b, "%s  %s\n", v.shorten("a path", l.path), v.shorten(Visible(l.path), l.text))
	}
	for _, path := range sortedKeys(lists) {
		if n := lists[path]; n > maxItems {
			fmt.Fprintf(&b, "%s  ⟦%d more of %d⟧\n", Visible(path), n-maxItems, n)
			v.omit(fmt.Sprintf("%s: %d more of %d", Visible(path), n-maxItems, n))
		}
	}
	v.Arguments = b.String()
}

// padding is what pushes something out of sight.
var padding = regexp.MustCompile(`(?:[ \t]|\\n|\\t|\\r|\\u[0-9a-f]{4}){40}`)

// A leaf is a value that holds no others, as JSON writes it.
type leaf struct {
	path string
	text string
	list string // the array that it is in, "" if none
}

func leaves(args json.RawMessage) []leaf {
	var out []leaf
	walk(args, func(path, list string, v any) {
		text, ok := v.(string)
		if ok {
			text = quoted(text)
		} else {
			b, _ := json.Marshal(v) // came from JSON
			text = string(b)
		}
		out = append(out, leaf{path, text, list})
	})
	return out
}

// quoted is s in quotes, with line feeds as \n; the rest is left to Visible.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// walk visits the leaves of a document, objects by key.
func walk(doc json.RawMessage, visit func(path, list string, v any)) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		visit("", "", string(doc))
		return
	}
	var down func(path, list string, v any)
	down = func(path, list string, v any) {
		switch v := v.(type) {
		case []any:
			if len(v) == 0 {
				visit(path, list, v)
			}
			for i, e := range v {
				down(path+"/"+strconv.Itoa(i), path, e)
			}
		case map[string]any:
			if len(v) == 0 {
				visit(path, list, v)
			}
			for _, k := range slices.Sorted(maps.Keys(v)) {
				down(path+"/"+sallyport.PointerToken(k), list, v[k])
			}
		default:
			visit(path, list, v)
		}
	}
	down("", "", v)
}

type longText struct{ path, text string }

// longTexts finds the strings that have several lines, such as code.
func longTexts(args json.RawMessage) []longText {
	var out []longText
	if !json.Valid(args) {
		return nil
	}
	walk(args, func(path, _ string, v any) {
		if s, ok := v.(string); ok && strings.Contains(s, "\n") {
			out = append(out, longText{path, s})
		}
	})
	return out
}

// many is from how many items on a list is summed up.
const many = 6

// remarks are what a reader would miss in long arguments: how many there are of
// something, which of them are unlike the others, and what a blob decodes to.
func remarks(args json.RawMessage) []Line {
	var out []Line
	lists := map[string][]string{}
	walk(args, func(path, list string, v any) {
		s, ok := v.(string)
		if !ok {
			return
		}
		if all := addresses(s); len(all) >= many {
			lists[path] = append(lists[path], all...)
		} else if list != "" {
			lists[every(path, list)] = append(lists[every(path, list)], s)
		}
		if why := disguised(s); why != "" {
			out = append(out, Line{"LOOKS LIKE", path + ": " + why})
		}
		b, coding := blob(s)
		if coding != "" {
			sum := sha256.Sum256(b)
			out = append(out, Line{"blob", fmt.Sprintf("%s is %s of %d bytes, sha256 %s, %s", path, coding, len(b), hex.EncodeToString(sum[:8]), opening(b))})
			s = string(b)
		}
		for _, text := range decoded(s) {
			out = append(out, Line{"DECODED", path + " holds " + opening([]byte(text))})
		}
	})
	var sums []Line
	for _, path := range sortedKeys(lists) {
		items := lists[path]
		if len(items) < many {
			continue
		}
		sums = append(sums, Line{"count", fmt.Sprintf("%s has %d entries", path, len(items))})
		if odd := odd(items); odd != "" {
			sums = append(sums, Line{"ODD", path + ": " + odd})
		}
	}
	return append(sums, out...)
}

// disguised finds a word that is written so that it reads as another: letters of
// two scripts in it, or only such of another script as pass for Latin ones, in a
// text without a word that is plainly of that script. "" if there is none.
func disguised(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 }) {
		return ""
	}
	found, foreign := "", false
	for w := range strings.FieldsFuncSeq(s[:min(len(s), 64<<10)], func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.M, unicode.Nd) && r != '_'
	}) {
		why := lookalike.Disguised(w)
		switch {
		case why == "":
			foreign = foreign || strings.ContainsFunc(w, func(r rune) bool { return r >= 0x370 })
		case strings.ContainsFunc(w, func(r rune) bool { return r < 0x80 && unicode.IsLetter(r) }):
			return fmt.Sprintf("%q %s", w, why)
		case found == "":
			found = fmt.Sprintf("%q %s", w, why)
		}
	}
	if foreign {
		return ""
	}
	return found
}

// odd names the items that are unlike most: of another domain, or of another
// form. "" if there is no rule that most of them follow.
func odd(items []string) string {
	kinds := map[string][]string{}
	for _, s := range items {
		k := kindOf(s)
		kinds[k] = append(kinds[k], s)
	}
	if len(kinds) == 1 {
		return ""
	}
	usual := ""
	for _, k := range sortedKeys(kinds) {
		if usual == "" || len(kinds[k]) > len(kinds[usual]) {
			usual = k
		}
	}
	if len(kinds[usual])*2 < len(items) {
		return fmt.Sprintf("%d different kinds", len(kinds))
	}
	var rest []string
	for _, k := range sortedKeys(kinds) {
		if k != usual {
			rest = append(rest, kinds[k]...)
		}
	}
	text := fmt.Sprintf("%d are %s; %d are not: ", len(kinds[usual]), usual, len(rest))
	shown := rest[:min(len(rest), maxItems)]
	text += strings.Join(shown, ", ")
	if n := len(rest) - len(shown); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// kindOf is what an item has in common with others: the domain of an address,
// else its form.
func kindOf(s string) string {
	if i := strings.LastIndexByte(s, '@'); i > 0 && i < len(s)-1 && !strings.ContainsAny(s, " \t\n") {
		return "at " + strings.ToLower(strings.TrimRight(s[i+1:], ">"))
	}
	return "like " + form(s)
}

// form is s with each run of digits as 9 and of letters as a.
func form(s string) string {
	var b strings.Builder
	last := rune(0)
	for _, r := range s {
		switch {
		case unicode.IsDigit(r):
			r = '9'
		case unicode.IsLetter(r):
			r = 'a'
		}
		if r != last {
			b.WriteRune(r)
		}
		last = r
	}
	if b.Len() > 40 {
		return b.String()[:40]
	}
	return b.String()
}

// every is the place of a value in all entries of a list: /to/3/email is /to/*/email.
func every(path, list string) string {
	if _, rest, ok := strings.Cut(strings.TrimPrefix(path, list+"/"), "/"); ok {
		return list + "/*/" + rest
	}
	return list
}

// addresses are those in a text that is a list of them.
func addresses(s string) []string {
	if strings.Count(s, "@") < many {
		return nil
	}
	return strings.FieldsFunc(s[:min(len(s), 64<<10)], func(r rune) bool { return r == ',' || r == ';' || unicode.IsSpace(r) })
}

var (
	base64Text = regexp.MustCompile(`^[A-Za-z0-9+/_-]{16,}={0,2}$`)
	hexText    = regexp.MustCompile(`^(?:[0-9A-Fa-f]{2}){12,}$`)
	inAddress  = regexp.MustCompile(`^data:[^,]{0,100};base64,`)
)

// aBlob is from how many characters on a text of that alphabet is taken for a coded
// one whatever it holds. What is shorter must be plain text when it is decoded,
// which a name or a token is not.
const aBlob = 120

// blob decodes what is meant as base64 or hex, and says which.
func blob(s string) (b []byte, coding string) {
	s = inAddress.ReplaceAllString(s, "")
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, s)
	var err error
	switch {
	case hexText.MatchString(s):
		b, err = hex.DecodeString(s)
		coding = "hex"
	case base64Text.MatchString(s):
		b, err = base64.RawStdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "=")))
		coding = "base64"
	}
	if err != nil || !plain(string(b)) && (coding == "hex" || len(s) < aBlob) {
		return nil, ""
	}
	return b, coding
}

// opening says what a blob begins with.
func opening(b []byte) string {
	head := b[:min(len(b), 200)]
	text := strings.ToValidUTF8(string(head), "\ufffd")
	printable := 0
	for _, r := range text {
		if r == '\n' || r == '\t' || shows(r) {
			printable++
		}
	}
	if printable*10 >= utf8.RuneCountInString(text)*9 {
		return "text: " + text
	}
	return "not text: " + hex.EncodeToString(head[:min(len(head), 16)]) + "…"
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
