package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/search"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/catalog/profile"
)

// A post is a server that sends mail, and keeps what it was given.
type post struct {
	*shop
	mu   sync.Mutex
	sent []string
}

func newPost(t *testing.T, modern bool, tools ...string) *post {
	p := &post{shop: newShop(t, "mail", modern)}
	for _, name := range append(tools, "send", "drop") {
		p.AddTool(&sdk.Tool{Name: name, Description: "Sends a mail.", InputSchema: json.RawMessage(
			`{"type":"object","properties":{"from":{"type":"string"},"to":{"type":"string"},"urgent":{"type":"boolean"}},"required":["from","to"]}`)},
			func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.sent = append(p.sent, name+" "+string(r.Params.Arguments))
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "sent"}}}, nil
			})
	}
	return p
}

func (p *post) took() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := strings.Join(p.sent, "; ")
	p.sent = nil
	return all
}

var desk = profile.Profile{
	Names: []string{"mail__*"}, Rename: map[string]string{"write_to_customer": "mail__send", "welcome": "mail__greet"},
	Describe: map[string]string{"mail__send": "Writes to a customer.", "mail__greet": "Says welcome."},
	Fix:      map[string]json.RawMessage{"mail__send": json.RawMessage(`{"from":"desk@example.com"}`), "mail__greet": json.RawMessage(`{"who":"Ann"}`)},
}

// last is the record of the newest call.
func (w *world) last() sallyport.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.entries[len(w.entries)-1]
}

// A profile shows a tool by another name, with other words and without the
// arguments that it gives itself; policies, the server and the record see the whole
// call, under the tool's own name.
func TestProfilesShapeTools(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, version string, modern bool) {
		p := newPost(t, modern)
		rules := `permit (principal, action, resource);
			@id("sender") forbid (principal, action == Action::"call", resource == Tool::"mail__send") unless { context.args has from && context.args.from == "desk@example.com" };`
		w := newWorld(t, setup{policies: rules, servers: []upstream.Config{p.config}, profiles: map[string]profile.Profile{"desk": desk}}).whole()
		ann := w.client("ann", "/desk", version, nil)
		list, err := ann.ListTools(t.Context(), nil)
		if err != nil || toolNames(list.Tools) != "mail__drop mail__link write_to_customer" {
			t.Fatalf("%s, %v", toolNames(list.Tools), err)
		}
		shown, _ := json.Marshal(list.Tools[2])
		if s := string(shown); list.Tools[2].Description != "Writes to a customer." || strings.Contains(s, "from") || !strings.Contains(s, `"required":["to"]`) || strings.Contains(s, "desk@") {
			t.Errorf("shown as %s", s)
		}
		for _, name := range []string{"write_to_customer", "mail__send"} {
			res, err := ann.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: map[string]any{"to": "c"}})
			if err != nil || res.IsError || p.took() != `send {"from":"desk@example.com","to":"c"}` {
				t.Fatalf("%s: %+v, %v", name, res, err)
			}
			if r := w.last(); r.Target != "mail__send" || string(r.Args) != `{"from":"desk@example.com","to":"c"}` || r.Profile != "desk" {
				t.Errorf("on record as %s %s", r.Target, r.Args)
			}
			for _, from := range []string{"from", "FROM", "From"} {
				res, err = ann.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: map[string]any{"to": "c", from: "boss@example.com"}})
				if err != nil || !res.IsError || !strings.Contains(saidBy(res), "has a fixed value here") || p.took() != "" {
					t.Errorf("%s with %s: %s, %v", name, from, saidBy(res), err)
				}
			}
		}
		// The control: elsewhere nothing is filled in, and the policy bites.
		res, err := w.client("ann", "", version, nil).CallTool(t.Context(), &sdk.CallToolParams{Name: "mail__send", Arguments: map[string]any{"to": "c", "from": "x"}})
		if err != nil || !res.IsError || p.took() != "" {
			t.Errorf("in the default profile: %s, %v", saidBy(res), err)
		}
		for name, code := range map[string]int64{"send": -32602, "Write_to_customer": -32602} {
			if _, err := ann.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: map[string]any{"to": "c"}}); rpcCode(err) != code {
				t.Errorf("%q: %v", name, err)
			}
		}
		prompts, err := ann.ListPrompts(t.Context(), nil)
		if err != nil || len(prompts.Prompts) != 1 || prompts.Prompts[0].Name != "welcome" || prompts.Prompts[0].Description != "Says welcome." || len(prompts.Prompts[0].Arguments) != 0 {
			t.Errorf("%+v, %v", prompts, err)
		}
		said, err := ann.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "welcome"})
		if err != nil || said.Messages[0].Content.(*sdk.TextContent).Text != "Hello Ann" {
			t.Errorf("%+v, %v", said, err)
		}
		if _, err := ann.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "welcome", Arguments: map[string]string{"who": "Eve"}}); err == nil {
			t.Error("a prompt takes an argument that is fixed")
		}
	})
}

// Property: whatever a profile calls a tool, and whatever it says of it, policies
// decide the same, and the server and the record see the same call.
func TestVerdictsNeverDependOnTheAlias(t *testing.T) {
	t.Parallel()
	p := newPost(t, true, "refund", "purge", "list")
	rules := `permit (principal, action, resource) unless { resource.name == "mail__purge" };
		forbid (principal, action == Action::"call", resource == Tool::"mail__refund") when { context.args has urgent && context.args.urgent };
		forbid (principal, action == Action::"list", resource == Tool::"mail__drop");`
	names := []string{"refund", "purge", "list", "send", "drop", "link"}
	random := rand.New(rand.NewPCG(1, 2))
	profiles := map[string]profile.Profile{"plain": {Names: []string{"mail__*"}}}
	for i := range 12 {
		shape := profile.Profile{Names: []string{"mail__*"}, Rename: map[string]string{}, Describe: map[string]string{}}
		for j, at := range random.Perm(len(names)) {
			if name := "mail__" + names[at]; random.IntN(3) > 0 {
				// Names of others at their home, too: none of them is special.
				shape.Rename[[]string{"list", "purge", "safe", "refund", "x", "read_only"}[j]] = name
				shape.Describe[name] = "harmless"
			}
		}
		profiles[fmt.Sprintf("p%d", i)] = shape
	}
	w := newWorld(t, setup{policies: rules, servers: []upstream.Config{p.config}, profiles: profiles}).whole()
	clients := map[string]*sdk.ClientSession{}
	for in := range profiles {
		clients[in] = w.client("ann", "/"+in, "", nil)
	}
	outcome := func(in, name string, urgent bool) string {
		res, err := clients[in].CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: map[string]any{"from": "a", "to": "b", "urgent": urgent}})
		r := w.last()
		said := fmt.Sprint(err)
		if err == nil {
			said = fmt.Sprint(res.IsError)
		}
		return strings.ReplaceAll(said, name, "X") + " " + string(r.Args) + string(r.Code) + fmt.Sprint(r.Policies) + p.took()
	}
	for _, name := range names {
		for _, urgent := range []bool{false, true} {
			want := outcome("plain", "mail__"+name, urgent)
			for in, shape := range profiles {
				for alias, of := range shape.Rename {
					if got := outcome(in, alias, urgent); of == "mail__"+name && got != want {
						t.Errorf("%s in %s, which is %s: %s, and by its own name %s", alias, in, name, got, want)
					}
				}
			}
		}
	}
}

// Only those hear of a change whose own view of the list is another one now.
func TestOnlyChangedViewsAreTold(t *testing.T) {
	t.Parallel()
	p := newPost(t, true)
	profiles := map[string]profile.Profile{"desk": {Names: []string{"mail__send", "mail__link"}}, "folded": {Names: []string{"mail__*"}, Search: true}}
	w := newWorld(t, setup{servers: []upstream.Config{p.config}, tools: search.Tools(), profiles: profiles}).whole()
	var told [3]chan struct{}
	for i, in := range []string{"", "/desk", "/folded"} {
		told[i] = make(chan struct{}, 8)
		w.client("ann", in, "", &sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { told[i] <- struct{}{} }})
	}
	w.eventually("three listen", func() bool { return w.hub.Listening() == 3 })
	p.AddTool(&sdk.Tool{Name: "new", InputSchema: map[string]any{"type": "object"}}, link)
	<-told[0] // the control
	w.hub.Changed()
	p.RemoveTools("send")
	<-told[1]
	<-told[0]
	// Other words for one profile are a change of its view alone.
	profiles = maps.Clone(profiles)
	profiles["desk"] = profile.Profile{Names: []string{"mail__link"}, Describe: map[string]string{"mail__link": "Links."}}
	if err := w.catalog.Set(profiles, nil); err != nil {
		t.Fatal(err)
	}
	w.hub.Changed()
	<-told[1]
	if len(told[0]) > 0 || len(told[1]) > 0 || len(told[2]) > 0 {
		t.Errorf("the desk was told %d times more, and whoever searches %d times", len(told[1]), len(told[2]))
	}
}

func toolNames(list []*sdk.Tool) string {
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.Name
	}
	return strings.Join(names, " ")
}

func saidBy(res *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}
