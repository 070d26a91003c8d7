package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/change"
	"sallyport.dev/sallyport/catalog/fit"
	"sallyport.dev/sallyport/catalog/suspect"
	"sallyport.dev/sallyport/wire"
)

// MetaOrigin is the _meta key under which a listed tool carries its name at
// its origin, where the exposed name does not show it.
const MetaOrigin = "dev.sallyport/originalName"

// A Listing is what one upstream server says it offers.
type Listing struct {
	Server       string
	Endpoint     string // upstream URL, or sha256 hex of the command line
	Credential   string // identity of the credential used there, never its value
	Instructions string
	Timeout      time.Duration     // of a call, where no manifest says otherwise; 0 is the gateway's
	Tools        []json.RawMessage // as the server wrote them

	// Routes are the requests that its tools become, by name, where the server is
	// an HTTP API. They come from what read its document, never from a server.
	Routes map[string]*sallyport.Route
}

// source is one server's tools, taken in.
type source struct {
	server   string
	sequence int
	entries  []*entry
	warnings []Warning
}

// SetListing replaces what one server offers. What is malformed, hidden or
// changed is quarantined tool by tool; it never fails because of a tool. An
// error means that the listing itself cannot be used; the old one then stays.
func (c *Catalog) SetListing(ctx context.Context, l Listing) error {
	if l.Server == "" {
		return fault("a listing needs the server's name")
	}
	if c.pins == nil {
		return fault("server %q: there is no store for pins", l.Server)
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	s := &source{server: l.Server}
	names, faces := c.names(l), c.faces(l.Server)
	seen, firsts := map[string]bool{}, map[string]Pin{}
	for i, raw := range l.Tools {
		name, reason := originName(raw)
		switch {
		case reason != "":
		case seen[name]:
			reason = "listed twice; the first one counts"
		default:
			seen[name] = true
			e := c.take(ctx, l, name, raw, names, faces, firsts)
			if s.entries = append(s.entries, e); e.tool.Status == sallyport.ToolActive {
				faces.Add(l.Server, name)
			}
			continue
		}
		s.warnings = append(s.warnings, Warning{l.Server, name, fmt.Sprintf("tool %d of the list is refused: %s", i, reason)})
	}
	c.pinFirsts(ctx, s, firsts)
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.sources[l.Server]; old != nil {
		s.sequence = old.sequence
	} else {
		c.sequence++
		s.sequence = c.sequence
	}
	c.sources[l.Server] = s
	c.told[l.Server] = true
	c.publish()
	return nil
}

// Listed reports whether a server has told its tools since the gateway started,
// even if it was removed after that. The gateway's own tools ("") are always told.
func (c *Catalog) Listed(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return server == "" || c.told[server]
}

// RemoveListing takes a server's tools away. Pins stay.
func (c *Catalog) RemoveListing(server string) {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.sources[server]; ok {
		delete(c.sources, server)
		c.publish()
	}
}

// originName reads the one thing without which a tool cannot even be named.
func originName(raw json.RawMessage) (name, reason string) {
	if err := wire.Validate(raw); err != nil {
		return "", err.Error()
	}
	if !wire.IsObject(raw) {
		return "", "it is not a JSON object"
	}
	v := wire.Member(raw, "name")
	name, ok := wire.String(v)
	switch {
	case v == nil:
		return "", "it has no name"
	case !ok:
		return "", "its name is not a string"
	case name == "":
		return "", "its name is empty"
	}
	return name, ""
}

// take makes an entry of one upstream tool and settles its pin; what is to be pinned
// is added to firsts.
func (c *Catalog) take(ctx context.Context, l Listing, name string, raw json.RawMessage, names suspect.Names, faces *suspect.Faces, firsts map[string]Pin) *entry {
	e := &entry{raw: raw, instructions: l.Instructions, tool: sallyport.Tool{
		Name:     ExposedName(l.Server, name),
		Version:  change.First,
		Status:   sallyport.ToolActive,
		Manifest: sallyport.Manifest{Timeout: l.Timeout},
		Origin: sallyport.Origin{
			Backend: "upstream", Server: l.Server, Name: name,
			Endpoint: l.Endpoint, Credential: l.Credential,
		},
	}}
	if l.Routes != nil {
		e.tool.Origin.Backend, e.tool.Route = "openapi", l.Routes[name]
	}
	reason, shown := e.read(raw), raw
	if reason == "" {
		shown = e.fit(raw)
		e.current, reason = pinForm(raw, l.Instructions, e.tool.Route)
	}
	e.tool.Definition, e.tool.ByTask = withoutTasks(rename(shown, e.tool.Name, name))
	if reason != "" {
		e.broken = true
		e.quarantine("malformed: " + reason)
		return e
	}
	e.tool.Digest = digest(e.current)
	e.found = c.judge.Look(name, raw, l.Instructions, names.Own)
	why := grave(slices.Concat(e.found, suspect.Mentions(raw, l.Instructions, names)))
	if server, other, ok := faces.Passes(name); ok {
		why = cmp.Or(why, fmt.Sprintf("its name passes for %q of %s", other, owner(server)))
	}
	if c.clean != nil {
		if cleaned := c.clean(e.tool.Definition); string(cleaned) != string(e.tool.Definition) {
			e.tool.Definition = cleaned
			e.found = append(e.found, suspect.Finding{Where: "/", What: "a secret is masked in it"})
		}
	}
	c.settle(ctx, e, why, firsts)
	return e
}

// faces are the names of all tools that can be called, but for one server's.
func (c *Catalog) faces(but string) *suspect.Faces {
	f := &suspect.Faces{}
	for _, e := range c.now.Load().entries {
		if o := e.tool.Origin; o.Server != but && e.tool.Status == sallyport.ToolActive {
			f.Add(o.Server, o.Name)
		}
	}
	return f
}

// read fills in description and schemas; it returns what is malformed.
func (e *entry) read(raw json.RawMessage) (reason string) {
	if v := wire.Member(raw, "description"); v != nil && !wire.IsNull(v) {
		var ok bool
		if e.tool.Description, ok = wire.String(v); !ok {
			return "its description is not a string"
		}
	}
	in := wire.Member(raw, "inputSchema")
	if in == nil {
		return "it has no inputSchema"
	}
	if !wire.IsObject(in) {
		return fmt.Sprintf("its inputSchema is not an object but %.20s", in)
	}
	if !fit.Object(in) {
		return fmt.Sprintf(`its inputSchema must have "type": "object", not %.40s`, wire.Member(in, "type"))
	}
	e.tool.InputSchema = in
	if out := wire.Member(raw, "outputSchema"); out != nil && !wire.IsNull(out) {
		// One that cannot be used checks nothing: results are only flagged by it.
		checker, err := compile(out)
		switch {
		case !wire.IsObject(out):
			e.warnings = append(e.warnings, fmt.Sprintf("its outputSchema cannot be used: it is not an object but %.20s", out))
		case err != nil:
			e.tool.OutputSchema = out
			e.warnings = append(e.warnings, "its outputSchema cannot be used: "+err.Error())
		default:
			e.tool.OutputSchema, e.output = out, checker
		}
	}
	checker, err := compile(in)
	if err != nil {
		return "its inputSchema cannot be used: " + err.Error()
	}
	e.schema = checker
	e.warnings = append(e.warnings, checker.warnings...)
	return ""
}

// fit is what agents see of a definition that was read.
func (e *entry) fit(raw json.RawMessage) json.RawMessage {
	shown, changed := fit.Tool(raw)
	if len(changed) > 0 {
		e.warnings = append(e.warnings, "some clients would take no list with it, so agents see these otherwise, or not: "+strings.Join(changed, ", "))
	}
	return shown
}

func (e *entry) quarantine(reason string) {
	e.tool.Status, e.tool.StatusReason = sallyport.ToolQuarantined, reason
}

// settle compares the tool with its pin. First sight is pinned, unless something
// in it is grave: a human looks at that first. What was approved so of one server is
// not of another that has its name now.
func (c *Catalog) settle(ctx context.Context, e *entry, grave string, firsts map[string]Pin) {
	origin := e.tool.Origin
	pinned, err := c.pins.GetPin(ctx, origin.Server, origin.Name)
	switch {
	case err != nil:
		e.quarantine("its pin cannot be read, so nobody knows whether it changed")
	case pinned.Definition != nil:
		e.pinned, e.tool.Version = pinned, pinned.Version
		if digest(pinned.Definition) != e.tool.Digest {
			e.quarantine("its definition changed since it was pinned; look at the difference, then approve it")
		} else if grave != "" && !pinned.Of(origin) {
			e.quarantine("it was approved of another server of this name; " + grave)
		}
	case grave != "":
		e.quarantine(grave)
	default:
		e.pinned = e.approved()
		firsts[origin.Name] = e.pinned
	}
}

// pinFirsts stores the pins of what was seen for the first time.
func (c *Catalog) pinFirsts(ctx context.Context, s *source, firsts map[string]Pin) {
	why := c.firsts.Pin(ctx, c.pins, s.server, firsts)
	if why == "" {
		return
	}
	for _, e := range s.entries {
		if _, first := firsts[e.tool.Origin.Name]; first {
			e.pinned = Pin{}
			e.quarantine(why)
		}
	}
}

// rename replaces the name and keeps every other byte. Where the new name does
// not show the old one, _meta does.
func rename(raw json.RawMessage, exposed, original string) json.RawMessage {
	out, err := wire.SetMember(raw, "name", wire.Quote(exposed))
	if err != nil {
		return raw
	}
	if strings.HasSuffix(exposed, joiner+original) {
		return out
	}
	if meta, err := wire.SetPath(out, wire.Quote(original), "_meta", MetaOrigin); err == nil {
		return meta
	}
	return out // _meta is not an object: leave it alone
}

// withoutTasks is a definition as clients see it: how its server wants tasks
// (revision 2025-11-25) is between it and the gateway, and a client that obeys would
// not call the tool at all.
func withoutTasks(raw json.RawMessage) (shown json.RawMessage, byTask bool) {
	support, _ := wire.String(wire.Path(raw, "execution", "taskSupport"))
	if support != "required" && support != "optional" {
		return raw, false
	}
	if shown, err := wire.SetPath(raw, wire.Quote("forbidden"), "execution", "taskSupport"); err == nil {
		raw = shown
	}
	return raw, support == "required"
}

// pinForm is what gets pinned: the tool, its server's instructions, and where and
// how its calls are made if it is an operation of an HTTP API, in the one form in
// which order and white space do not matter.
func pinForm(raw json.RawMessage, instructions string, route *sallyport.Route) (form json.RawMessage, reason string) {
	doc := append([]byte(`{"instructions":`), wire.Quote(instructions)...)
	if route != nil {
		b, err := json.Marshal(route)
		if err != nil {
			return nil, err.Error()
		}
		doc = append(append(doc, `,"route":`...), b...)
	}
	doc = append(append(append(doc, `,"tool":`...), raw...), '}')
	form, err := sallyport.Canonical(doc)
	if err != nil {
		return nil, err.Error()
	}
	return form, ""
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
