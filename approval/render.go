package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.dev/sallyport"
)

func remaining(tk sallyport.Ticket, now time.Time) string {
	until, what := tk.DecideBy, "decide"
	switch tk.State {
	case sallyport.TicketPending:
	case sallyport.TicketApproved:
		until, what = tk.RunBy, "run"
	default:
		return ""
	}
	return fmt.Sprintf("  (%s within %s)", what, until.Sub(now).Round(time.Second))
}

func indent(text, with string) string {
	text = strings.TrimSuffix(text, "\n")
	return with + strings.ReplaceAll(text, "\n", "\n"+with) + "\n"
}

// shows reports whether r appears as itself, and as nothing else.
func shows(r rune) bool {
	if r < 0x7f {
		return r >= ' '
	}
	if !unicode.IsPrint(r) { // C1, format and bidi controls, separators, odd spaces, private use, unassigned
		return false
	}
	switch {
	case r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2800, r == 0x3164, r == 0xffa0: // blank
		return false
	case r >= 0x180b && r <= 0x180f, r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000 && r <= 0xe0fff: // variation selectors, tags
		return false
	}
	return r != utf8.RuneError
}

// Visible returns s with whatever a terminal would obey or not show written as
// \u escapes. Text that is plain stays as it is.
//
// It is stricter than package redact/visible, on purpose: nothing is excused
// because it does its proper work in an emoji or a Persian word, and what is
// escaped inside of JSON is still JSON with the same value.
func Visible(s string) string {
	i := strings.IndexFunc(s, func(r rune) bool { return !shows(r) })
	if i < 0 {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:i])
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case shows(r):
			b.WriteRune(r)
		default:
			escape(&b, r)
		}
		i += n
	}
	return b.String()
}

// escape writes r as JSON does, with a surrogate pair beyond 16 bits.
func escape(b *strings.Builder, r rune) {
	switch r {
	case '\n':
		b.WriteString(`\n`)
	case '\t':
		b.WriteString(`\t`)
	default:
		if r > 0xffff {
			r -= 0x10000
			fmt.Fprintf(b, `\u%04x`, 0xd800+(r>>10)&0x3ff)
			r = 0xdc00 + r&0x3ff
		}
		fmt.Fprintf(b, `\u%04x`, r)
	}
}

// visibleLines keeps line feeds and tabs.
func visibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		cells := strings.Split(l, "\t")
		for j := range cells {
			cells[j] = Visible(cells[j])
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}

// PrettyJSON lays canonical JSON out over lines. What it writes is JSON with
// the same values: number literals verbatim, strings with every character that
// does not show as itself escaped. What is not JSON is shown as one string.
func PrettyJSON(v json.RawMessage) string {
	var out bytes.Buffer
	if json.Indent(&out, v, "", "  ") != nil {
		return Visible(string(v)) + "\n"
	}
	// Outside of strings json.Indent leaves ASCII only, and inside of strings
	// JSON has no raw control characters: what remains to escape is in strings.
	lines := strings.Split(out.String(), "\n")
	for i, l := range lines {
		lines[i] = Visible(l)
	}
	return strings.Join(lines, "\n") + "\n"
}
