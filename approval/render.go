package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.dev/sallyport"
)

// Render writes a ticket for a human on a terminal: what is dangerous first,
// then who asks for what, then the exact arguments. Numbers stand as the caller
// wrote them; whatever does not show as itself is written as an escape, so that
// no text in a ticket can move the cursor, hide a part or look like another.
func Render(tk sallyport.Ticket, now time.Time) string {
	var b strings.Builder
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-12s %s\n", label, Visible(text))
		}
	}
	fmt.Fprintf(&b, "TICKET %s  %s%s\n", Visible(tk.ID), strings.ToUpper(Visible(string(tk.State))), remaining(tk, now))
	fmt.Fprintf(&b, "RISK   %s\n", strings.ToUpper(tk.Risk.Level.String()))
	if tk.Risk.Irreversible {
		b.WriteString("       CANNOT BE UNDONE\n")
	}
	for _, r := range tk.Risk.Reasons {
		fmt.Fprintf(&b, "     ! %s\n", Visible(r))
	}
	line("touches", strings.Join(tk.Risk.Objects, ", "))
	bd := tk.Binding
	b.WriteString("\n")
	line("tool", bd.Tool+" (version "+bd.ToolVersion+")")
	line("agent", bd.Principal)
	line("on behalf of", bd.OnBehalfOf)
	line("tenant", bd.Tenant)
	line("profile", bd.Profile)
	line("goes to", bd.Endpoint)
	line("credential", bd.Credential)
	line("runs in", strings.TrimSpace(bd.Tier+" "+bd.Image))
	line("may reach", strings.Join(bd.Egress, ", "))
	line("demanded by", strings.Join(tk.Policies, ", "))
	line("call", tk.CallID)
	line("hash", tk.Hash)
	if tk.DecidedBy != "" {
		line("decided by", tk.DecidedBy+" at "+tk.DecidedAt.UTC().Format(time.RFC3339))
	}
	line("reason", tk.Reason)
	b.WriteString("\nARGUMENTS, exactly as they will run\n")
	b.WriteString(indent(PrettyJSON(bd.Args), "  "))
	for _, t := range longTexts(bd.Args) {
		fmt.Fprintf(&b, "\n%s, line by line\n%s", Visible(t.path), indent(visibleLines(t.text), "  | "))
	}
	return b.String()
}

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

type longText struct{ path, text string }

// longTexts finds the strings that have several lines, such as code.
func longTexts(args json.RawMessage) []longText {
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	var out []longText
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case string:
			if strings.Contains(v, "\n") {
				out = append(out, longText{path, v})
			}
		case []any:
			for i, e := range v {
				walk(path+"/"+strconv.Itoa(i), e)
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(k), v[k])
			}
		}
	}
	walk("", v)
	return out
}
