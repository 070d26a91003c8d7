package approval

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// A Group holds the tickets that ask for the same thing of the same tool as it
// is now, with what sets each of them apart. There is one decision for each
// ticket all the same.
type Group struct {
	Tool    string   `json:"tool"`
	Digest  string   `json:"digest"`
	Agents  []string `json:"agents"`
	Tickets []Member `json:"tickets"` // those unlike the others first
}

// A Member is a ticket of a group.
type Member struct {
	Ticket  string   `json:"ticket"`
	Differs []string `json:"differs,omitempty"` // from most of the group
}

// Groups puts tickets into groups, the most dangerous first.
func Groups(tickets []sallyport.Ticket) []Group {
	type key struct{ tool, digest string }
	byKey := map[key][]sallyport.Ticket{}
	var order []key
	for _, t := range tickets {
		k := key{t.Binding.Tool, t.Binding.ToolDigest}
		if byKey[k] == nil {
			order = append(order, k)
		}
		byKey[k] = append(byKey[k], t)
	}
	worst := func(k key) (n int) {
		for _, t := range byKey[k] {
			n = max(n, weight(t.Risk))
		}
		return n
	}
	slices.SortStableFunc(order, func(a, b key) int { return worst(b) - worst(a) })
	out := make([]Group, 0, len(order))
	for _, k := range order {
		out = append(out, group(byKey[k]))
	}
	return out
}

func weight(r sallyport.Risk) int {
	n := 2 * int(r.Level)
	if r.Irreversible {
		n++
	}
	return n
}

func group(tickets []sallyport.Ticket) Group {
	g := Group{Tool: tickets[0].Binding.Tool, Digest: tickets[0].Binding.ToolDigest}
	values, forms, paths := map[string]int{}, map[string]int{}, map[string]int{}
	all := make([]map[string]string, len(tickets))
	for i, t := range tickets {
		all[i] = facts(t)
		for p, v := range all[i] {
			values[p+"\x00"+v]++
			forms[p+"\x00"+form(v)]++
			paths[p]++
		}
		if !slices.Contains(g.Agents, t.Binding.Principal) {
			g.Agents = append(g.Agents, t.Binding.Principal)
		}
	}
	n := len(tickets)
	usual := map[string]bool{} // places where most have one value: any other stands out, whatever it looks like
	for p := range paths {
		for _, facts := range all {
			if v, ok := facts[p]; ok && values[p+"\x00"+v]*2 > n {
				usual[p] = true
				break
			}
		}
	}
	for i, t := range tickets {
		m := Member{Ticket: t.ID}
		for _, p := range sortedKeys(all[i]) {
			v := all[i][p]
			if n > 1 && values[p+"\x00"+v]*2 <= n && (usual[p] || forms[p+"\x00"+form(v)]*2 <= n) {
				text, _ := short(v, 80)
				m.Differs = append(m.Differs, Visible(p)+" "+text)
			}
		}
		for _, p := range sortedKeys(paths) {
			if _, there := all[i][p]; !there && paths[p]*2 > n {
				m.Differs = append(m.Differs, "no "+Visible(p))
			}
		}
		g.Tickets = append(g.Tickets, m)
	}
	slices.SortStableFunc(g.Tickets, func(a, b Member) int { return len(b.Differs) - len(a.Differs) })
	return g
}

// facts are what two tickets of one tool can differ in.
func facts(t sallyport.Ticket) map[string]string {
	f := map[string]string{"risk": t.Risk.Level.String() + map[bool]string{true: ", cannot be undone"}[t.Risk.Irreversible]}
	if len(t.Risk.Objects) > 0 {
		f["touches"] = strings.Join(t.Risk.Objects, ", ")
	}
	for _, l := range leaves(t.Binding.Args) {
		f[l.path] = l.text
	}
	return f
}

// Show returns a ticket with its view, and with what has changed since the
// ticket before it that the same agent had for the same tool.
func (e *Engine) Show(ctx context.Context, tenant, id string) (sallyport.Ticket, View, error) {
	tk, err := e.store.Ticket(ctx, tenant, id)
	if err != nil {
		return tk, View{}, err
	}
	v := NewView(tk, e.o.Clock())
	before, err := e.store.ListTickets(ctx, store.TicketFilter{Tenant: tenant, Principal: tk.Binding.Principal, Tool: tk.Binding.Tool, Limit: 50})
	if err != nil {
		return tk, View{}, err
	}
	for _, old := range before { // the newest first
		if old.ID != tk.ID && old.CreatedAt.Before(tk.CreatedAt) && old.State != sallyport.TicketPending {
			v.Changed = since(old, tk)
			break
		}
	}
	return tk, v, nil
}

// since says in what a ticket differs from an earlier one.
func since(old, tk sallyport.Ticket) []string {
	var out []string
	for _, d := range tk.Binding.Differs(old.Binding) {
		if !strings.HasPrefix(d, "args") && !strings.HasPrefix(d, "witness") {
			out = append(out, Visible(d))
		}
	}
	was, now := facts(old), facts(tk)
	for _, p := range sortedKeys(now) {
		if before, there := was[p]; !there || before != now[p] {
			a, _ := short(before, 80)
			b, _ := short(now[p], 80)
			out = append(out, fmt.Sprintf("%s: %s, was %s", Visible(p), b, a))
		}
	}
	if len(out) > maxItems {
		out = append(out[:maxItems], fmt.Sprintf("and %d more", len(out)-maxItems))
	}
	for i := range out {
		out[i] = "unlike " + Visible(old.ID) + " (" + string(old.State) + "): " + out[i]
	}
	return out
}
