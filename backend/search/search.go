// Package search is the backend of search_tools, which stands for a list of tools
// that is too long to be read. What it finds is what the asker may see.
package search

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/search"
	"sallyport.dev/sallyport/wire"
)

// Key is the Tool.Origin.Backend of the tools.
const Key = "builtin"

// See returns what of a list a principal may see. (gateway)
type See func(who sallyport.Principal, profile string, shelf sallyport.Shelf) (sallyport.Sight, error)

// A Backend runs search_tools. It is safe for concurrent use.
type Backend struct {
	see   See
	index search.Index
}

// New returns a backend.
func New(see See) *Backend { return &Backend{see: see} }

// Tools are search_tools, and call_tool, which never gets here: the path takes a
// call of it for one of the tool that it names.
func Tools() []sallyport.Tool {
	return []sallyport.Tool{
		tool(sallyport.SearchTools, "Finds tools by what they are for. This endpoint has more tools than it lists: describe in a few words what you want to do, "+
			"and you get the definitions of those that fit best. Call them with call_tool.",
			`{"type":"object","properties":{"query":{"type":"string","description":"what the tool should do, or its name","minLength":1,"maxLength":512},`+
				`"limit":{"type":"integer","description":"how many tools at most; 5 if it is left out","minimum":1,"maximum":25}},"required":["query"],"additionalProperties":false}`),
		tool(sallyport.CallTools, "Calls a tool that search_tools found. The call is exactly the tool's own: the same rules, approvals and results.",
			`{"type":"object","properties":{"name":{"type":"string","description":"the tool's name","minLength":1,"maxLength":128},`+
				`"arguments":{"type":"object","description":"its arguments, as its inputSchema says","additionalProperties":true}},"required":["name"],"additionalProperties":false}`),
	}
}

func tool(name, description, schema string) sallyport.Tool {
	return sallyport.Tool{
		Name: name, Version: "1", Description: description, InputSchema: json.RawMessage(schema), Status: sallyport.ToolActive,
		Origin: sallyport.Origin{Backend: Key, Name: name},
	}
}

// Info describes the backend.
func (b *Backend) Info() sallyport.Info {
	return sallyport.Info{Name: "search", Isolation: "builtin"}
}

// Check is nil: there is nothing that could be away.
func (b *Backend) Check(context.Context) error { return nil }

// Close frees nothing.
func (b *Backend) Close() error { return nil }

const few = 5

// Run finds tools.
func (b *Backend) Run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if err := ctx.Err(); err != nil {
		return sallyport.Output{}, fmt.Errorf("%w (%w)", err, sallyport.ErrNotExecuted)
	}
	in := struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	}{Limit: few}
	if err := json.Unmarshal(job.Args, &in); err != nil || job.Tool.Origin.Name != sallyport.SearchTools {
		return sallyport.Output{}, fmt.Errorf("%s does not take this: %w", job.Tool.Name, sallyport.ErrNotExecuted)
	}
	sight, err := b.see(job.Who, job.Profile, "")
	if err != nil {
		return sallyport.Output{}, err
	}
	all := slices.Concat(sight.Found, sight.List)
	all = slices.DeleteFunc(all, func(t sallyport.Tool) bool { return t.Name == sallyport.SearchTools || t.Name == sallyport.CallTools })
	slices.SortStableFunc(all, func(x, y sallyport.Tool) int { return strings.Compare(x.Shown(), y.Shown()) })
	return sallyport.Output{Content: answer(b.index.Find(job.Profile, all, in.Query, in.Limit), len(all))}, nil
}

// answer shows what was found as lists do: definitions, byte for byte.
func answer(found []sallyport.Tool, of int) json.RawMessage {
	list := []byte(`{"tools":[`)
	for i, t := range found {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, t.Definition...)
	}
	list = fmt.Appendf(list, `],"searched":%d}`, of)
	text := "No tool fits these words. Try others."
	if len(found) > 0 {
		text = string(list)
	}
	out := append([]byte(`{"content":[{"type":"text","text":`), wire.Quote(text)...)
	return append(append(append(out, `}],"structuredContent":`...), list...), '}')
}
