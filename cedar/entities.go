package cedar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go/types"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/redact/lookalike"
)

// Names of servers that the gateway gives to tools that come from none. The
// configuration must refuse servers with these names.
const (
	BuiltinServer = "builtin" // the gateway's own tools
	ScriptServer  = "scripts" // tools with code of the operator
)

// entities are what one request is about; it implements types.EntityGetter.
type entities struct {
	principal, resource types.Entity
	server              types.EntityUID
	groups              []types.EntityUID // the principal's tenant and roles
	skeleton            string            // of the resource's name
}

// Get returns the principal or the resource. Nothing else has attributes.
func (e entities) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid.Type {
	case "Agent":
		return e.principal, uid == e.principal.UID
	case "Tool", "Resource", "Prompt":
		return e.resource, uid == e.resource.UID
	}
	return types.Entity{}, false
}

// entityCache keeps the entities of agents and tools, which cost more to build
// than a decision does. It does not depend on the policies.
type entityCache struct {
	agents cache[agentKey, agentEntity]
	tools  cache[[2]types.String, toolEntity] // by type and name
}

type agentKey struct{ tenant, id string }

type agentEntity struct {
	roles  []string
	entity types.Entity
	groups []types.EntityUID
}

// toolFacts is all of a tool that policies can see.
type toolFacts struct {
	typ                                types.EntityType
	name, server, kind, version, trust string
	readOnly                           bool
}

type toolEntity struct {
	facts    toolFacts
	entity   types.Entity
	server   types.EntityUID
	skeleton string
}

func (c *entityCache) of(q gateway.Question) (entities, error) {
	facts, err := factsOf(q.Tool)
	if err != nil {
		return entities{}, err
	}
	if q.Who.ID == "" || q.Who.Tenant == "" || strings.ContainsRune(q.Who.Tenant, '/') {
		return entities{}, fmt.Errorf("no agent has tenant %q and id %q", q.Who.Tenant, q.Who.ID)
	}
	key := agentKey{q.Who.Tenant, q.Who.ID}
	agent, ok := c.agents.get(key)
	if !ok || !slices.Equal(agent.roles, q.Who.Roles) {
		agent = newAgentEntity(q.Who)
		c.agents.put(key, agent)
	}
	place := [2]types.String{types.String(facts.typ), types.String(facts.name)}
	tool, ok := c.tools.get(place)
	if !ok || tool.facts != facts {
		tool = newToolEntity(facts)
		c.tools.put(place, tool)
	}
	return entities{agent.entity, tool.entity, tool.server, agent.groups, tool.skeleton}, nil
}

func factsOf(t sallyport.Tool) (toolFacts, error) {
	f := toolFacts{
		typ: typeOf(t.Shelf), name: t.Name, server: t.Origin.Server, kind: "upstream",
		version: t.Version, trust: t.Manifest.Trust, readOnly: t.Manifest.ReadOnly,
	}
	if f.trust == "" {
		f.trust = "agent"
	}
	switch {
	case f.name == "":
		return f, errors.New("the tool has no name")
	case f.server == BuiltinServer, f.server == ScriptServer:
		return f, fmt.Errorf("tool %q is of a server with the reserved name %q", f.name, f.server)
	case f.server != "":
	case t.Code != nil && t.Code.Source != "":
		f.server, f.kind = ScriptServer, "script"
	case t.Origin.Backend == "upstream":
		return f, fmt.Errorf("tool %q is of an upstream server without a name", f.name)
	default:
		f.server, f.kind = BuiltinServer, "builtin"
	}
	return f, nil
}

// typeOf is what the schema calls the things of a shelf.
func typeOf(s sallyport.Shelf) types.EntityType {
	switch s {
	case sallyport.Resources, sallyport.Templates:
		return "Resource"
	case sallyport.Prompts:
		return "Prompt"
	}
	return "Tool"
}

func newAgentEntity(who sallyport.Principal) agentEntity {
	groups := []types.EntityUID{types.NewEntityUID("Tenant", types.String(who.Tenant))}
	for _, role := range who.Roles {
		uid := types.NewEntityUID("Role", types.String(role))
		if !slices.Contains(groups, uid) {
			groups = append(groups, uid)
		}
	}
	return agentEntity{
		roles:  slices.Clone(who.Roles),
		groups: groups,
		entity: types.Entity{
			UID:     types.NewEntityUID("Agent", types.String(who.Tenant+"/"+who.ID)),
			Parents: types.NewEntityUIDSet(groups...),
			Attributes: types.NewRecord(types.RecordMap{
				"tenant": types.String(who.Tenant), "id": types.String(who.ID),
			}),
		},
	}
}

func newToolEntity(f toolFacts) toolEntity {
	server := types.NewEntityUID("Server", types.String(f.server))
	return toolEntity{
		facts:    f,
		server:   server,
		skeleton: lookalike.Skeleton(f.name),
		entity: types.Entity{
			UID:     types.NewEntityUID(f.typ, types.String(f.name)),
			Parents: types.NewEntityUIDSet(server),
			Attributes: types.NewRecord(types.RecordMap{
				"name": types.String(f.name), "server": types.String(f.server), "kind": types.String(f.kind),
				"version": types.String(f.version), "trust": types.String(f.trust),
				"read_only": types.Boolean(f.readOnly),
			}),
		},
	}
}

// A cache is a map that starts anew when it is full. Its zero value is empty.
type cache[K comparable, V any] struct {
	mu sync.RWMutex
	m  map[K]V
}

const cacheSize = 32768

func (c *cache[K, V]) get(k K) (V, bool) {
	c.mu.RLock()
	v, ok := c.m[k]
	c.mu.RUnlock()
	return v, ok
}

func (c *cache[K, V]) put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= cacheSize {
		c.m = make(map[K]V)
	}
	c.m[k] = v
}
