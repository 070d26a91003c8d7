package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// A View is what a human is shown of a ticket: what is dangerous first, taken
// out of the arguments, then who asks, then the arguments. Every channel shows
// the same view: the terminal, the JSON of the admin API, a card in a chat. No
// text in it can move a cursor, hide a part or look like another: whatever does
// not show as itself is an escape.
type View struct {
	Ticket    string   `json:"ticket"`
	State     string   `json:"state"`
	Risk      string   `json:"risk"` // "CRITICAL", and that it cannot be undone
	Danger    []Line   `json:"danger"`
	Reasons   []string `json:"reasons"`
	Details   []Line   `json:"details"`
	Arguments string   `json:"arguments"` // exactly, or shortened where they are long
	Code      string   `json:"code,omitempty"`
	Changed   []string `json:"changed,omitempty"` // since the ticket before it about the same tool
	Hash      string   `json:"hash"`
	Omitted   []string `json:"omitted,omitempty"` // what was left out
	Truncated bool     `json:"truncated"`         // something was: an approval needs the word at the end of the full view
}

// A Line is one thing to know.
type Line struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}

// Bounds of what is shown before the full view must be opened.
const (
	maxText    = 600  // characters of one text
	maxWhole   = 6000 // bytes of arguments that are shown exactly
	maxLines   = 150  // of arguments or code
	maxItems   = 12   // of one list
	maxReasons = 20
	maxCode    = 12_000 // bytes
)

// NewView makes the view of a ticket.
func NewView(tk sallyport.Ticket, now time.Time) View {
	v := View{Ticket: Visible(tk.ID), State: strings.ToUpper(Visible(string(tk.State))) + remaining(tk, now), Hash: Visible(tk.Hash)}
	v.Risk = strings.ToUpper(tk.Risk.Level.String())
	if tk.Risk.Irreversible {
		v.Risk += ", CANNOT BE UNDONE"
	}
	v.danger(tk)
	for i, r := range tk.Risk.Reasons {
		if i == maxReasons {
			v.omit(fmt.Sprintf("%d more reasons", len(tk.Risk.Reasons)-i))
			break
		}
		v.Reasons = append(v.Reasons, v.shorten("a reason", r))
	}
	v.details(tk)
	v.arguments(tk.Binding.Args)
	v.code(tk.About.Code)
	return v
}

func (v *View) omit(what string) {
	v.Truncated = true
	v.Omitted = append(v.Omitted, what)
}

// shorten is s on one line, with what is left out noted.
func (v *View) shorten(where, s string) string {
	out, left := short(s, maxText)
	if left > 0 {
		v.omit(fmt.Sprintf("%s: %d characters", where, left))
	}
	return out
}

func (v *View) line(label, text string) {
	if text != "" {
		v.Danger = append(v.Danger, Line{label, text})
	}
}

func (v *View) detail(label, text string) {
	if text != "" {
		v.Details = append(v.Details, Line{label, text})
	}
}

// danger takes out what matters most: operation, target, count, amount,
// recipients, and the parts that the assessment points at.
func (v *View) danger(tk sallyport.Ticket) {
	operation := tk.Binding.Tool
	if len(tk.Risk.Effects) > 0 {
		operation += ": " + strings.Join(tk.Risk.Effects, ", ")
	}
	v.line("operation", v.shorten("operation", operation))
	v.line("touches", v.list("touches", tk.Risk.Objects, ", "))
	for i, a := range tk.Risk.Amounts {
		if i == maxItems {
			v.omit(fmt.Sprintf("%d more amounts", len(tk.Risk.Amounts)-i))
			break
		}
		text := a.Value + " " + a.Currency
		if a.Recipient != "" {
			text += " to " + a.Recipient
		}
		v.line("amount", v.shorten("amount", strings.TrimSpace(text)))
	}
	shown := map[string]int{}
	for _, p := range tk.Risk.Parts {
		if shown[p.Label]++; shown[p.Label] > maxItems {
			continue
		}
		if p.Label == sallyport.PartsLeftOut {
			v.omit("dangerous parts beyond those that are listed")
		}
		text := v.shorten(p.Label, p.Text)
		if p.Path != "" {
			text += "   (" + v.shorten("a path", p.Path) + ")"
		}
		v.line(Visible(p.Label), text)
	}
	for _, label := range sortedKeys(shown) {
		if n := shown[label]; n > maxItems {
			v.line(Visible(label), fmt.Sprintf("%d in all", n))
			v.omit(fmt.Sprintf("%d more of: %s", n-maxItems, Visible(label)))
		}
	}
	for _, l := range remarks(tk.Binding.Args) {
		v.line(l.Label, v.shorten(l.Label, l.Text))
	}
	for _, p := range tk.Unbound {
		v.line("NOT BOUND", "content not bound: "+v.shorten("a path", p)+" (what it refers to can change after you decide)")
	}
	for _, o := range tk.Binding.Witness {
		text := v.shorten("a witness", o.Name+": "+o.Value)
		if o.Binds != "" {
			text += "   (content of " + Visible(o.Binds) + ")"
		}
		v.line("seen now", text)
	}
}

// list joins items, the first of them where there are many.
func (v *View) list(what string, items []string, with string) string {
	rest := len(items) - maxItems
	if rest > 0 {
		v.omit(fmt.Sprintf("%s: %d more", what, rest))
		items = items[:maxItems]
	}
	out := make([]string, len(items))
	for i, s := range items {
		out[i] = v.shorten(what, s)
	}
	text := strings.Join(out, with)
	if rest > 0 {
		text += fmt.Sprintf("%s⟦%d more⟧", with, rest)
	}
	return text
}

// Destination is an endpoint in words: a URL, or which command line it is.
func Destination(endpoint string) string {
	if endpoint == "" || strings.Contains(endpoint, "://") {
		return endpoint
	}
	return "the command with sha256 " + grouped(endpoint)
}

// details say who asks, for what, and who may decide.
func (v *View) details(tk sallyport.Ticket) {
	bd := tk.Binding
	put := func(label, text string) { v.detail(label, v.shorten(label, text)) }
	put("tool", strings.TrimSuffix(bd.Tool+" (version "+bd.ToolVersion+") from "+tk.About.Server, " from "))
	about, left := short(tk.About.Description, maxText)
	if left > 0 {
		about += " (see `sallyport tools show`)"
	}
	v.detail("says", about)
	put("digest", grouped(bd.ToolDigest))
	put("agent", bd.Principal)
	put("on behalf of", bd.OnBehalfOf)
	put("made by", tk.Actor)
	put("tenant", bd.Tenant)
	put("profile", bd.Profile)
	put("goes to", Destination(bd.Endpoint))
	put("credential", bd.Credential)
	put("runs in", strings.TrimSpace(bd.Tier+" "+bd.Image))
	v.detail("may reach", v.list("may reach", bd.Egress, ", "))
	put("saga", sagaOf(tk))
	put("plan", bd.Plan)
	v.detail("demanded by", v.list("demanded by", tk.Policies, ", "))
	for _, d := range tk.Demands {
		put("needs", d.String())
	}
	if len(tk.EscalatedTo) > 0 {
		put("escalated", "since "+tk.EscalatedAt.UTC().Format(time.RFC3339)+" also to "+strings.Join(tk.EscalatedTo, ", "))
	}
	for _, vote := range tk.Votes {
		word := "rejects"
		if vote.Approve {
			word = "approves"
		}
		put("vote", strings.TrimSpace(fmt.Sprintf("%s %s at %s %s", vote.By, word, vote.At.UTC().Format(time.RFC3339), vote.Reason)))
	}
	put("call", tk.CallID)
	if tk.DecidedBy != "" {
		put("decided by", tk.DecidedBy+" at "+tk.DecidedAt.UTC().Format(time.RFC3339))
	}
	put("reason", tk.Reason)
	put("void", tk.VoidReason)
}

// sagaOf names the saga that the call is of, "" if it is of none.
func sagaOf(tk sallyport.Ticket) string {
	if tk.Binding.Saga != "" {
		return tk.Binding.Saga + ", opened by the agent: a call of it"
	}
	saga, step, undo, n, ok := sallyport.ParseSagaKey(tk.Key)
	if !ok {
		return ""
	}
	what := "step "
	if undo {
		what = "undo of step "
	}
	return fmt.Sprintf("%s, %s%s, attempt %d", saga, what, step, n)
}

// grouped makes a digest readable: blocks of eight.
func grouped(hex string) string {
	var out []string
	for c := range slices.Chunk([]byte(hex), 8) {
		out = append(out, string(c))
	}
	return strings.Join(out, " ")
}

func (v *View) code(code string) {
	if code == "" {
		return
	}
	lines := strings.Split(code, "\n")
	if len(lines) > maxLines || len(code) > maxCode {
		lines = lines[:min(len(lines), maxLines)]
		for i, l := range lines {
			lines[i], _ = short(l, 200)
		}
		v.omit(fmt.Sprintf("the tool's code has %d bytes", len(code)))
		v.Code = strings.Join(lines, "\n") + "\n⟦more⟧\n"
		return
	}
	v.Code = visibleLines(code) + "\n"
}

// SeenWord is the word at the end of a ticket's full view.
func SeenWord(tk sallyport.Ticket) string {
	sum := sha256.Sum256([]byte("sallyport full view\n" + tk.Hash))
	return hex.EncodeToString(sum[:4])
}

// Text is the view for a terminal.
func (v View) Text() string {
	var b strings.Builder
	v.head(&b)
	b.WriteString("\nARGUMENTS" + map[bool]string{false: ", exactly as they will run", true: ", SHORTENED"}[v.Truncated] + "\n" + indent(v.Arguments, "  "))
	if v.Code != "" {
		b.WriteString("\nCODE of the tool\n" + indent(v.Code, "  | "))
	}
	if v.Truncated {
		b.WriteString("\nNOT SHOWN: " + strings.Join(v.Omitted, "; ") + "\n" +
			"  read it all with `sallyport approvals show --full " + v.Ticket + "`: the word at its end is needed to approve\n")
	}
	return b.String()
}

func (v View) head(b *strings.Builder) {
	fmt.Fprintf(b, "TICKET %s  %s\n", v.Ticket, v.State)
	risk, undone, _ := strings.Cut(v.Risk, ", ")
	fmt.Fprintf(b, "RISK   %s\n", risk)
	if undone != "" {
		fmt.Fprintf(b, "       %s\n", undone)
	}
	lines(b, v.Danger)
	for _, r := range v.Reasons {
		fmt.Fprintf(b, "     ! %s\n", r)
	}
	for _, c := range v.Changed {
		fmt.Fprintf(b, "     ~ %s\n", c)
	}
	b.WriteString("\n")
	lines(b, v.Details)
	lines(b, []Line{{"hash", v.Hash}})
}

func lines(b *strings.Builder, all []Line) {
	for _, l := range all {
		fmt.Fprintf(b, "  %-12s %s\n", l.Label, l.Text)
	}
}

// Render writes the full view of a ticket for a terminal: nothing is left out,
// numbers stand as the caller wrote them.
func Render(tk sallyport.Ticket, now time.Time) string {
	v := NewView(tk, now)
	var b strings.Builder
	v.head(&b)
	for i, r := range tk.Risk.Reasons {
		if i >= maxReasons || len(r) > maxText {
			fmt.Fprintf(&b, "     ! %s\n", Visible(r))
		}
	}
	if len(tk.Risk.Objects) > maxItems {
		b.WriteString("\nTOUCHES, all of them\n")
		for _, o := range tk.Risk.Objects {
			fmt.Fprintf(&b, "  %s\n", Visible(o))
		}
	}
	if v.Truncated && len(tk.Risk.Parts)+len(tk.Risk.Amounts) > 0 {
		b.WriteString("\nDANGEROUS PARTS, all of them\n")
		for _, p := range tk.Risk.Parts {
			fmt.Fprintf(&b, "  %-12s %s   (%s)\n", Visible(p.Label), Visible(p.Text), Visible(p.Path))
		}
		for _, a := range tk.Risk.Amounts {
			fmt.Fprintf(&b, "  amount       %s %s %s\n", Visible(a.Value), Visible(a.Currency), Visible(a.Recipient))
		}
	}
	b.WriteString("\nARGUMENTS, exactly as they will run\n" + indent(PrettyJSON(tk.Binding.Args), "  "))
	for _, t := range longTexts(tk.Binding.Args) {
		fmt.Fprintf(&b, "\n%s, line by line\n%s", Visible(t.path), indent(visibleLines(t.text), "  | "))
	}
	if tk.About.Code != "" {
		b.WriteString("\nCODE of the tool\n" + indent(visibleLines(tk.About.Code), "  | "))
	}
	if v.Truncated {
		fmt.Fprintf(&b, "\nREAD IN FULL: to approve, give --seen %s\n", SeenWord(tk))
	}
	return b.String()
}

// maxCard bounds a card.
const maxCard = 2800

// Card is the view as plain text for a chat or a mail. It is safe inside a code
// block: nothing in it ends one, is markup, or makes a line of its own. whole
// says that nothing was left out; a channel must not offer to approve a card
// that is not whole.
func (v View) Card() (text string, whole bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\nRISK %s\n", v.Ticket, v.State, v.Risk)
	lines(&b, v.Danger)
	for _, r := range v.Reasons {
		fmt.Fprintf(&b, "  ! %s\n", r)
	}
	lines(&b, slices.DeleteFunc(slices.Clone(v.Details), func(l Line) bool {
		return !slices.Contains([]string{"tool", "agent", "on behalf of", "needs", "vote", "goes to"}, l.Label)
	}))
	tail := "hash " + v.Hash + "\n"
	body := b.String() + "arguments\n" + indent(v.Arguments, "  ")
	whole = !v.Truncated && v.Code == "" && len(body)+len(tail) <= maxCard
	if !whole {
		const more = "\nSHORTENED: read it all with sallyport approvals show --full before you decide\n"
		body = strings.ToValidUTF8(body[:min(len(body), maxCard-len(tail)-len(more))], "") + more
	}
	return unmarked.Replace(body + tail), whole
}

// unmarked escapes what markup is made of.
var unmarked = strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`, "`", `\u0060`)
