package cedar

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
)

//go:embed schema.cedarschema
var schemaText []byte

// A fault is what is wrong inside one policy.
type fault struct{ message, hint string }

// A checker validates policies against the schema. The types of arguments are
// not in it: each policy is checked against the types that it implies itself,
// so that it must be consistent, and guard each argument with `has`.
type checker struct {
	schema *resolved.Schema
	plain  *validate.Validator
	byArgs map[string]*validate.Validator
}

func newChecker() *checker {
	var s schema.Schema
	s.SetFilename("schema.cedarschema")
	if err := s.UnmarshalCedar(schemaText); err != nil {
		panic(err) // part of the program
	}
	r, err := s.Resolve()
	if err != nil {
		panic(err)
	}
	return &checker{schema: r, plain: validate.New(r), byArgs: make(map[string]*validate.Validator)}
}

// policy checks p. usesArgs reports whether its conditions read arguments.
func (c *checker) policy(p *policy) (usesArgs bool, faults []fault) {
	t := tree(p.src)
	inf := newInference(c.schema)
	for range 2 { // the second time, what one place tells about an argument is known in all
		inf.faults = nil
		for _, cond := range t.Conditions {
			inf.walk(cond.Body, resolved.BoolType{})
		}
	}
	faults = inf.faults
	if len(faults) > 0 {
		return inf.uses, faults
	}
	if err := c.validator(inf).Policy("", t); err != nil {
		lines := strings.Split(err.Error(), "\n")
		if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "unrecognized") }) { // then this only follows from it
			lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "unable to find an applicable action") })
		}
		for _, line := range lines {
			faults = append(faults, fault{line, hintFor(line)})
		}
	}
	return inf.uses, faults
}

// validator returns one whose schema has the inferred arguments.
func (c *checker) validator(inf *inference) *validate.Validator {
	if len(inf.args.fields) == 0 && len(inf.texts.fields) == 0 {
		return c.plain
	}
	args, texts := inf.args.record(), inf.texts.record()
	key := fmt.Sprintf("%v|%v", args, texts) // maps print in key order
	if v := c.byArgs[key]; v != nil {
		return v
	}
	if len(c.byArgs) >= 1024 {
		clear(c.byArgs)
	}
	s := *c.schema
	s.Actions = maps.Clone(s.Actions)
	for _, name := range []gateway.Action{gateway.ActionCall, gateway.ActionRead} {
		act := s.Actions[actions[name].uid]
		applies := *act.AppliesTo
		applies.Context = maps.Clone(applies.Context)
		applies.Context["args"] = resolved.Attribute{Type: args}
		applies.Context["args_text"] = resolved.Attribute{Type: texts}
		act.AppliesTo = &applies
		s.Actions[act.Entity.UID] = act
	}
	v := validate.New(&s)
	c.byArgs[key] = v
	return v
}

func hintFor(message string) string {
	switch {
	case strings.Contains(message, "args"):
		return "test an argument with `has` first; only the actions \"call\" and \"read\" have arguments"
	case strings.Contains(message, "attribute"):
		return "docs/policies.md lists what policies can speak about; only the actions \"call\" and \"read\" have a risk and a tier"
	case strings.Contains(message, "action"):
		return "the actions are Action::\"list\" and Action::\"call\" of tools, and Action::\"read\" of resources and prompts"
	case strings.Contains(message, "entity type"):
		return "the entity types are Agent, Role, Tenant, Tool, Resource, Prompt and Server"
	}
	return ""
}

// choices lists the values of attributes that have only a few.
var choices = map[string][]types.String{
	"resource.kind":           {"builtin", "script", "upstream"},
	"resource.trust":          {"agent", "untrusted", "light"},
	"context.tier":            {"", "gvisor", "microvm", "isolate", "wasm"},
	"context.risk.level_name": {"low", "medium", "high", "critical"},
	"context.risk_effects": {
		sallyport.EffectRead, sallyport.EffectWrite, sallyport.EffectDelete, sallyport.EffectDestroy, sallyport.EffectPrivileges,
		sallyport.EffectExecute, sallyport.EffectNetwork, sallyport.EffectMessage, sallyport.EffectMoney, sallyport.EffectOpaque,
	},
}
