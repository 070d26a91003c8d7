package mcpserver

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver/cursor"
	"sallyport.dev/sallyport/mcpserver/lacks"
	"sallyport.dev/sallyport/mcpserver/older"
	"sallyport.dev/sallyport/wire"
)

func (x *exchange) listTools()     { x.list("", "tools") }
func (x *exchange) listResources() { x.list(sallyport.Resources, "resources") }
func (x *exchange) listTemplates() { x.list(sallyport.Templates, "resourceTemplates") }
func (x *exchange) listPrompts()   { x.list(sallyport.Prompts, "prompts") }

// list answers with a page of what the caller may see of a list.
func (x *exchange) list(shelf sallyport.Shelf, member string) {
	ctx, done, ok := x.callContext()
	if !ok {
		return
	}
	defer done()
	sight, err := x.s.gateway.List(ctx, x.credential, x.profile, shelf, x.size)
	if err != nil {
		x.refuse(err)
		return
	}
	if sight.Incomplete && len(sight.List) == 0 {
		x.refuse(&sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Resolve, RetryAfter: time.Second,
			Message: "no server has told its " + member + " yet", Hint: "list again; an operator sees how the servers are in `sallyport servers list`",
		})
		return
	}
	if shelf == "" {
		x.learn(sight)
	}
	x.page(sight, shelf, member)
}

// page writes the items that follow the cursor, as many as fit a page.
func (x *exchange) page(sight sallyport.Sight, shelf sallyport.Shelf, member string) {
	list := sorted(sight.List)
	places := x.cursors(sight.Who, shelf, list)
	from, ok := 0, true
	if raw := wire.Member(x.msg.Params, "cursor"); raw != nil && !wire.IsNull(raw) {
		var at string
		if at, ok = wire.String(raw); ok && at != "" {
			from, ok = places.Find(at)
		}
	}
	if !ok {
		x.fail(http.StatusOK, badParams("cursor is not one that this gateway gave you for this list as it is now; start without one"))
		return
	}
	to := min(from+x.s.opts.PageSize, len(list))
	size := 256
	for i := range list[from:to] {
		size += len(list[from+i].Definition) + 1
	}
	b := append(append(make([]byte, 0, size), `{"`+member...), `":[`...)
	for i, t := range list[from:to] {
		if i > 0 {
			b = append(b, ',')
		}
		if shelf == "" && !x.modern {
			t.Definition = older.Tool(t.Definition)
		}
		b = append(b, t.Definition...)
	}
	b = append(b, ']')
	if to < len(list) {
		b = wire.AppendString(append(b, `,"nextCursor":`...), places.After(to-1))
	}
	x.result(append(b, x.listEnd(lacks.Marks(sight, x.s.opts.Down))...))
}

// cursors are those of a list as this caller sees it now.
func (x *exchange) cursors(who sallyport.Principal, shelf sallyport.Shelf, list []sallyport.Tool) cursor.List {
	of := []string{string(shelf), x.profile, who.Tenant, who.ID, who.OnBehalfOf}
	if x.session != nil {
		of = append(of, x.session.id)
	}
	return cursor.List{
		Of: of, Len: len(list),
		Name: func(i int) string { return list[i].Shown() }, State: func(i int) string { return list[i].Digest },
	}
}

// listEnd ends the result of a list. What it lacks is not passed over in silence.
func (x *exchange) listEnd(mark string) string {
	switch {
	case x.modern && mark != "":
		return `,"resultType":"complete"` + strings.TrimSuffix(x.s.listTail(), "}") + "," + mark + "}}"
	case x.modern:
		return `,"resultType":"complete"` + x.s.listTail() + "}"
	case mark != "":
		return `,"_meta":{` + mark + "}}"
	}
	return "}"
}

// sorted returns the items by name; the same list always comes out the same.
func sorted(tools []sallyport.Tool) []sallyport.Tool {
	byName := func(a, b sallyport.Tool) int { return strings.Compare(a.Shown(), b.Shown()) }
	if slices.IsSortedFunc(tools, byName) {
		return tools
	}
	return slices.SortedStableFunc(slices.Values(tools), byName)
}
