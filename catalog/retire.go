package catalog

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// MetaDeprecated is the _meta key under which a listed tool says until when it
// can be called, and what to use instead.
const MetaDeprecated = "dev.sallyport/deprecated"

// aged is an entry as it is now: a deprecated tool says so to who lists it, and
// is retired when its last day, by UTC, is over.
func (b *builder) aged(e *entry) *entry {
	d := e.tool.Manifest.Deprecated
	if d == nil {
		return e
	}
	fresh := *e
	t := &fresh.tool
	if d.Until != "" {
		day, err := time.Parse(time.DateOnly, d.Until)
		end := day.AddDate(0, 0, 1)
		switch {
		case err != nil || !b.now.Before(end): // a manifest holds no other dates
			t.Status, t.StatusReason = sallyport.ToolRetired, d.String()
			return &fresh
		case b.until.IsZero() || end.Before(b.until):
			b.until = end
		}
	}
	t.Definition = announce(t.Definition, *d)
	return &fresh
}

// announce puts a deprecation where models and clients read it.
func announce(definition json.RawMessage, d sallyport.Deprecation) json.RawMessage {
	said, _ := wire.String(wire.Member(definition, "description"))
	out, err := wire.SetMember(definition, "description", wire.Quote(strings.TrimSpace(fmt.Sprintf("[%s] %s", d, said))))
	if err != nil {
		return definition
	}
	about := []byte("{")
	for _, m := range []struct{ name, value string }{{"since", d.Since}, {"until", d.Until}, {"use", d.Use}} {
		if m.value != "" {
			if len(about) > 1 {
				about = append(about, ',')
			}
			about = append(append(append(about, wire.Quote(m.name)...), ':'), wire.Quote(m.value)...)
		}
	}
	if meta, err := wire.SetPath(out, append(about, '}'), "_meta", MetaDeprecated); err == nil {
		return meta
	}
	return out // _meta is not an object: leave it alone
}
