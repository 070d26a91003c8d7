package catalog

import (
	"fmt"
	"maps"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/suspect"
	"sallyport.dev/sallyport/redact/lookalike"
)

// Remarks tell, by exposed name, what an operator should be wary of in a tool
// that may nevertheless be called, and has not accepted yet. They depend on all
// tools that there are, not on the order in which they came.
func (c *Catalog) Remarks() map[string][]string {
	s := c.current()
	s.look.Do(func() {
		all := map[string][]string{}
		entries := s.entries
		list := make([]sallyport.Tool, 0, len(entries))
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			list = append(list, entries[name].tool)
		}
		alike(list, all)
		servers := byOrigin(list)
		for name, e := range entries {
			for _, f := range e.found {
				all[name] = append(all[name], f.String())
			}
			if e.raw == nil || e.broken {
				continue
			}
			for _, f := range suspect.Mentions(e.raw, e.instructions, namesOf(servers, e.tool.Origin.Server, nil)) {
				all[name] = append(all[name], f.String())
			}
		}
		s.all, s.remarks = all, map[string][]string{}
		for name, said := range all {
			for _, r := range said {
				if !slices.Contains(entries[name].pinned.Accepted, r) {
					s.remarks[name] = append(s.remarks[name], r)
				}
			}
		}
	})
	return s.remarks
}

// remarks are all that there is to be wary of in a tool, accepted or not.
func (c *Catalog) remarks(name string) []string {
	c.Remarks()
	return c.current().all[name]
}

// byOrigin tells whose tools have a name, exposed or at its origin; "" stands
// for the gateway's own.
func byOrigin(list []sallyport.Tool) map[string][]string {
	out := map[string][]string{}
	for _, t := range list {
		out[t.Name] = append(out[t.Name], t.Origin.Server)
		if t.Origin.Name != t.Name {
			out[t.Origin.Name] = append(out[t.Origin.Name], t.Origin.Server)
		}
	}
	return out
}

// names tell of the words in the texts of a listing which are tools, of its own
// server or of another.
func (c *Catalog) names(l Listing) suspect.Names {
	own := map[string]bool{}
	for _, raw := range l.Tools {
		if name, reason := originName(raw); reason == "" {
			own[name], own[ExposedName(l.Server, name)] = true, true
		}
	}
	var list []sallyport.Tool
	for _, e := range c.now.Load().entries {
		list = append(list, e.tool)
	}
	return namesOf(byOrigin(list), l.Server, own)
}

func namesOf(servers map[string][]string, server string, own map[string]bool) suspect.Names {
	return suspect.Names{
		Own: func(word string) bool { return own[word] || slices.Contains(servers[word], server) },
		Other: func(word string) string {
			for _, s := range servers[word] {
				if s != server {
					return owner(s)
				}
			}
			return ""
		},
	}
}

func owner(server string) string {
	if server == "" {
		return "the gateway itself"
	}
	return fmt.Sprintf("server %q", server)
}

func grave(found []suspect.Finding) string {
	for _, f := range found {
		if f.Grave {
			return f.String()
		}
	}
	return ""
}

// maxAlike bounds how many names are named as like one.
const maxAlike = 3

// alike adds a remark to each tool whose name can be taken for that of another
// server's tool.
func alike(list []sallyport.Tool, remarks map[string][]string) {
	names := make([]lookalike.Name, len(list))
	for i, t := range list {
		names[i] = lookalike.Name{Owner: t.Origin.Server, Short: t.Origin.Name, Whole: t.Name}
	}
	for i, like := range lookalike.Pairs(names, maxAlike) {
		for _, j := range like {
			remarks[list[i].Name] = append(remarks[list[i].Name], resembles(list[i], list[j]))
		}
	}
}

func resembles(t, other sallyport.Tool) string {
	if t.Origin.Name == other.Origin.Name {
		return fmt.Sprintf("%s has a tool of the same name", owner(other.Origin.Server))
	}
	return fmt.Sprintf("its name can be taken for %q of %s", other.Name, owner(other.Origin.Server))
}

// alikeServers warns of servers whose names can be taken for one another.
func alikeServers(names []string) (out []Warning) {
	first := map[string]string{}
	for _, name := range names {
		key := lookalike.Skeleton(name)
		if other, taken := first[key]; taken {
			out = append(out, Warning{Server: name, Reason: fmt.Sprintf("its name can be taken for that of server %q", other)},
				Warning{Server: other, Reason: fmt.Sprintf("its name can be taken for that of server %q", name)})
			continue
		}
		first[key] = name
	}
	return out
}
