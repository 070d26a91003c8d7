package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact/visible"
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
	seen := map[string]bool{}
	for i, raw := range l.Tools {
		name, reason := originName(raw)
		switch {
		case reason != "":
		case seen[name]:
			reason = "listed twice; the first one counts"
		default:
			seen[name] = true
			s.entries = append(s.entries, c.take(ctx, l, name, raw))
			continue
		}
		s.warnings = append(s.warnings, Warning{l.Server, name, fmt.Sprintf("tool %d of the list is refused: %s", i, reason)})
	}
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

// take makes an entry of one upstream tool and settles its pin.
func (c *Catalog) take(ctx context.Context, l Listing, name string, raw json.RawMessage) *entry {
	e := &entry{tool: sallyport.Tool{
		Name:     ExposedName(l.Server, name),
		Version:  "1",
		Status:   sallyport.ToolActive,
		Manifest: sallyport.Manifest{Timeout: l.Timeout},
		Origin: sallyport.Origin{
			Backend: "upstream", Server: l.Server, Name: name,
			Endpoint: l.Endpoint, Credential: l.Credential,
		},
	}}
	e.tool.Definition = rename(raw, e.tool.Name, name)
	reason := e.read(raw)
	if reason == "" {
		e.current, reason = pinForm(raw, l.Instructions)
	}
	if reason != "" {
		e.broken = true
		e.quarantine("malformed: " + reason)
		return e
	}
	e.tool.Digest = digest(e.current)
	c.settle(ctx, e, concealed(raw, l.Instructions))
	return e
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
	if v := wire.Member(in, "type"); v != nil {
		if s, _ := wire.String(v); s != "object" {
			return fmt.Sprintf(`its inputSchema must have "type": "object", not %.40s`, v)
		}
	}
	e.tool.InputSchema = in
	if out := wire.Member(raw, "outputSchema"); out != nil && !wire.IsNull(out) {
		if !wire.IsObject(out) {
			return fmt.Sprintf("its outputSchema is not an object but %.20s", out)
		}
		e.tool.OutputSchema = out
		// One that cannot be used checks nothing: results are only flagged by it.
		if checker, err := compile(out); err == nil {
			e.output = checker
		} else {
			e.warnings = append(e.warnings, "its outputSchema cannot be used: "+err.Error())
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

func (e *entry) quarantine(reason string) {
	e.tool.Status, e.tool.StatusReason = sallyport.ToolQuarantined, reason
}

// settle compares the tool with its pin. First sight is pinned, unless
// something in it is hidden from the reader: a human looks at that first.
func (c *Catalog) settle(ctx context.Context, e *entry, hides string) {
	origin := e.tool.Origin
	pinned, err := c.pins.GetPin(ctx, origin.Server, origin.Name)
	switch {
	case err != nil:
		e.quarantine("its pin cannot be read, so nobody knows whether it changed")
	case pinned != nil:
		e.pinned = pinned
		if digest(pinned) != e.tool.Digest {
			e.quarantine("its definition changed since it was pinned; look at the difference, then approve it")
		}
	case hides != "":
		e.quarantine(hides)
	default:
		if err := c.pins.PutPin(ctx, origin.Server, origin.Name, e.current); err != nil {
			e.quarantine("its pin cannot be stored")
			return
		}
		e.pinned = e.current
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

// pinForm is what gets pinned: the tool and its server's instructions, in the
// one form in which order and white space do not matter.
func pinForm(raw json.RawMessage, instructions string) (form json.RawMessage, reason string) {
	doc := append([]byte(`{"instructions":`), wire.Quote(instructions)...)
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

// hidden returns a description of the first character of s that a reader would
// not see, or that could move what they see; "" if there is none.
func hidden(s string) string {
	i := visible.Index(s)
	if i < 0 {
		return ""
	}
	r, _, kind := visible.At(s, i)
	return fmt.Sprintf("hidden character U+%04X (%s) at byte %d", r, kind, i)
}

// concealed looks for hidden characters in every string of a tool, names of
// members too, and in the server's instructions.
func concealed(raw json.RawMessage, instructions string) (reason string) {
	if why := hidden(instructions); why != "" {
		return "the server's instructions hold a " + why
	}
	if why := hiddenIn(raw, ""); why != "" {
		return "its definition holds a " + why
	}
	return ""
}

func hiddenIn(raw json.RawMessage, path string) string {
	if s, ok := wire.String(raw); ok {
		if why := hidden(s); why != "" {
			return why + " of " + path
		}
		return ""
	}
	if wire.IsObject(raw) {
		for name, v := range wire.Members(raw) {
			if why := hidden(string(name)); why != "" {
				return why + " of a member's name below " + path + "/"
			}
			if why := hiddenIn(v, path+"/"+string(name)); why != "" {
				return why
			}
		}
		return ""
	}
	i := 0
	for v := range wire.Elements(raw) {
		if why := hiddenIn(v, fmt.Sprintf("%s/%d", path, i)); why != "" {
			return why
		}
		i++
	}
	return ""
}
