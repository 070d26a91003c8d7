package cedar

import (
	"iter"

	cedargo "github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"

	"sallyport.dev/sallyport/gateway"
)

// An action of the schema, and its place in a leaf.
type action struct {
	uid types.EntityUID
	at  int
}

var actions = map[gateway.Action]action{
	gateway.ActionList: {types.NewEntityUID("Action", "list"), 0},
	gateway.ActionCall: {types.NewEntityUID("Action", "call"), 1},
	gateway.ActionRead: {types.NewEntityUID("Action", "read"), 2},
}

// An index finds the policies that can match a request: by resource, then by
// principal, then by action. A scope without an entity is filed under the zero
// uid. Every policy stands in one leaf, so a look-up meets it at most once, and
// costs the same with ten policies as with ten thousand, as long as those are
// about different tools or agents.
type index map[types.EntityUID]map[types.EntityUID]*leaf

type leaf [3]bucket // by action.at

type bucket struct {
	rules, holds []*policy
	args         bool // some policy here reads the arguments
}

func (x index) add(p *policy) {
	t := tree(p.src)
	byPrincipal := x[scopeEntity(t.Resource)]
	if byPrincipal == nil {
		byPrincipal = make(map[types.EntityUID]*leaf)
		x[scopeEntity(t.Resource)] = byPrincipal
	}
	l := byPrincipal[scopeEntity(t.Principal)]
	if l == nil {
		l = new(leaf)
		byPrincipal[scopeEntity(t.Principal)] = l
	}
	for _, a := range actions {
		if !inScope(t.Action, a.uid) {
			continue
		}
		b, q := &l[a.at], p.forAction(a.uid)
		if q.holds() {
			b.holds = append(b.holds, q)
		} else {
			b.rules = append(b.rules, q)
		}
		b.args = b.args || p.args
	}
}

// forAction returns p for a leaf of one action: `action in [a, b]` becomes
// `action == a`, which means the same there and is cheaper to evaluate.
func (p *policy) forAction(uid types.EntityUID) *policy {
	t := tree(p.src)
	if _, ok := t.Action.(xast.ScopeTypeInSet); !ok {
		return p
	}
	one := *t
	one.Action = xast.ScopeTypeEq{Entity: uid}
	q := *p
	q.src = cedargo.NewPolicyFromAST((*ast.Policy)(&one))
	return &q
}

// scopeEntity returns the one entity that a scope names, or the zero uid.
func scopeEntity(scope any) types.EntityUID {
	switch s := scope.(type) {
	case xast.ScopeTypeEq:
		return s.Entity
	case xast.ScopeTypeIn:
		return s.Entity
	case xast.ScopeTypeIsIn:
		return s.Entity
	}
	return types.EntityUID{}
}

// inScope reports whether an action is in an action scope. The schema has no
// groups of actions. What is not recognised counts as in scope: the policy
// itself is evaluated anyway.
func inScope(scope xast.IsActionScopeNode, uid types.EntityUID) bool {
	switch s := scope.(type) {
	case xast.ScopeTypeEq:
		return s.Entity == uid
	case xast.ScopeTypeIn:
		return s.Entity == uid
	case xast.ScopeTypeInSet:
		for _, e := range s.Entities {
			if e == uid {
				return true
			}
		}
		return false
	}
	return true
}

// candidates are the policies that may match one request.
type candidates struct {
	rules, holds policies
	args         bool
}

func (x index) find(ents entities, act action) candidates {
	var c candidates
	c.rules.lists, c.holds.lists = make([][]*policy, 0, 8), nil
	for _, res := range [...]types.EntityUID{ents.resource.UID, ents.server, {}} {
		byPrincipal := x[res]
		if byPrincipal == nil {
			continue
		}
		c.take(byPrincipal[types.EntityUID{}], act)
		c.take(byPrincipal[ents.principal.UID], act)
		for _, group := range ents.groups {
			c.take(byPrincipal[group], act)
		}
	}
	return c
}

func (c *candidates) take(l *leaf, act action) {
	if l == nil {
		return
	}
	b := &l[act.at]
	if len(b.rules) > 0 {
		c.rules.lists = append(c.rules.lists, b.rules)
	}
	if len(b.holds) > 0 {
		c.holds.lists = append(c.holds.lists, b.holds)
	}
	c.args = c.args || b.args
}

// policies implements cedar-go's PolicyIterator.
type policies struct{ lists [][]*policy }

func (p policies) empty() bool { return len(p.lists) == 0 }

func (p policies) All() iter.Seq2[cedargo.PolicyID, *cedargo.Policy] {
	return func(yield func(cedargo.PolicyID, *cedargo.Policy) bool) {
		for _, list := range p.lists {
			for _, q := range list {
				if !yield(q.id, q.src) {
					return
				}
			}
		}
	}
}

// tree returns the syntax tree in the form that the validator takes.
func tree(p *cedargo.Policy) *xast.Policy { return (*xast.Policy)((*ast.Policy)(p.AST())) }
