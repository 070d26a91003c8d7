package cedar

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
)

// An inference finds out which arguments a policy reads and as what: `<` means
// a Long, `like` a String, and `==` whatever the other side is.
type inference struct {
	schema      *resolved.Schema
	args, texts *shape
	uses        bool
	faults      []fault
}

// A shape is what is known about one argument.
type shape struct {
	path   string
	typ    resolved.IsType // nil while unknown
	fields map[types.String]*shape
}

func newInference(s *resolved.Schema) *inference {
	return &inference{schema: s, args: &shape{path: "context.args"}, texts: &shape{path: "context.args_text"}}
}

func (s *shape) child(name types.String) *shape {
	if s.fields == nil {
		s.fields = make(map[types.String]*shape)
	}
	c := s.fields[name]
	if c == nil {
		c = &shape{path: s.path + "." + string(name)}
		s.fields[name] = c
	}
	return c
}

// record is the type of s, every attribute optional. An argument of which
// nothing is known is taken for a String.
func (s *shape) record() resolved.RecordType {
	r := make(resolved.RecordType, len(s.fields))
	for name, f := range s.fields {
		a := resolved.Attribute{Type: f.typ, Optional: true}
		switch {
		case len(f.fields) > 0:
			a.Type = f.record()
		case f.typ == nil:
			a.Type = resolved.StringType{}
		}
		r[name] = fillSets(a)
	}
	return r
}

func fillSets(a resolved.Attribute) resolved.Attribute {
	if set, ok := a.Type.(resolved.SetType); ok && set.Element == nil {
		a.Type = resolved.SetType{Element: resolved.StringType{}}
	}
	return a
}

// argument returns the argument that n reads, or nil.
func (inf *inference) argument(n ast.IsNode) *shape {
	a, ok := n.(ast.NodeTypeAccess)
	if !ok {
		return nil
	}
	if isVariable(a.Arg, "context") {
		switch a.Value {
		case "args":
			return inf.args
		case "args_text":
			return inf.texts
		}
		return nil
	}
	if parent := inf.argument(a.Arg); parent != nil {
		return parent.child(a.Value)
	}
	return nil
}

func isVariable(n ast.IsNode, name types.String) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == name
}

// walk visits n, which is used as want (nil: as anything).
func (inf *inference) walk(n ast.IsNode, want resolved.IsType) {
	if s := inf.argument(n); s != nil {
		inf.uses = true
		inf.use(s, want)
		return
	}
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		if n.Name == "context" { // as a whole, arguments and all
			inf.uses = true
		}
	case ast.NodeTypeAccess:
		if !isVariable(n.Arg, "context") {
			inf.walk(n.Arg, nil)
		}
	case ast.NodeTypeHas:
		inf.walkHas(n)
	case ast.NodeTypeLike:
		inf.walk(n.Arg, resolved.StringType{})
	case ast.NodeTypeIfThenElse:
		inf.walk(n.If, resolved.BoolType{})
		inf.walk(n.Then, want)
		inf.walk(n.Else, want)
	case ast.NodeTypeNot:
		inf.walk(n.Arg, resolved.BoolType{})
	case ast.NodeTypeNegate:
		inf.walk(n.Arg, resolved.LongType{})
	case ast.NodeTypeIsEmpty:
		inf.walk(n.Arg, resolved.SetType{})
	case ast.NodeTypeIs:
		inf.walk(n.Left, nil)
	case ast.NodeTypeIsIn:
		inf.walk(n.Left, nil)
		inf.walk(n.Entity, nil)
	case ast.NodeTypeExtensionCall:
		for _, a := range n.Args {
			inf.walk(a, nil)
		}
	case ast.NodeTypeRecord:
		for _, e := range n.Elements {
			inf.walk(e.Value, nil)
		}
	case ast.NodeTypeSet:
		for _, e := range n.Elements {
			inf.walk(e, elementOf(want))
		}
	default:
		inf.walkBinary(n)
	}
}

func (inf *inference) walkHas(n ast.NodeTypeHas) {
	if s := inf.argument(n.Arg); s != nil {
		inf.uses = true
		s.child(n.Value)
		return
	}
	if isVariable(n.Arg, "context") {
		inf.uses = inf.uses || n.Value == "args" || n.Value == "args_text"
		return
	}
	inf.walk(n.Arg, nil)
}

func (inf *inference) walkBinary(n ast.IsNode) {
	both := func(b ast.BinaryNode, left, right resolved.IsType) {
		inf.walk(b.Left, left)
		inf.walk(b.Right, right)
	}
	long, truth := resolved.LongType{}, resolved.BoolType{}
	switch n := n.(type) {
	case ast.NodeTypeAnd:
		both(n.BinaryNode, truth, truth)
	case ast.NodeTypeOr:
		both(n.BinaryNode, truth, truth)
	case ast.NodeTypeLessThan:
		both(n.BinaryNode, long, long)
	case ast.NodeTypeLessThanOrEqual:
		both(n.BinaryNode, long, long)
	case ast.NodeTypeGreaterThan:
		both(n.BinaryNode, long, long)
	case ast.NodeTypeGreaterThanOrEqual:
		both(n.BinaryNode, long, long)
	case ast.NodeTypeAdd:
		both(n.BinaryNode, long, long)
	case ast.NodeTypeSub:
		both(n.BinaryNode, long, long)
	case ast.NodeTypeMult:
		both(n.BinaryNode, long, long)
	case ast.NodeTypeEquals:
		inf.walkEquals(n.BinaryNode)
	case ast.NodeTypeNotEquals:
		inf.walkEquals(n.BinaryNode)
	case ast.NodeTypeContains:
		inf.checkChoice(n.Right, n.Left)
		inf.checkChoice(n.Left, n.Right)
		both(n.BinaryNode, resolved.SetType{Element: inf.typeOf(n.Right)}, elementOf(inf.typeOf(n.Left)))
	case ast.NodeTypeContainsAll:
		inf.checkChoice(n.Left, n.Right)
		both(n.BinaryNode, setLike(inf.typeOf(n.Right)), setLike(inf.typeOf(n.Left)))
	case ast.NodeTypeContainsAny:
		inf.checkChoice(n.Left, n.Right)
		both(n.BinaryNode, setLike(inf.typeOf(n.Right)), setLike(inf.typeOf(n.Left)))
	case ast.NodeTypeIn:
		both(n.BinaryNode, nil, nil)
	case ast.NodeTypeHasTag:
		both(n.BinaryNode, nil, nil)
	case ast.NodeTypeGetTag:
		both(n.BinaryNode, nil, nil)
	}
}

func (inf *inference) walkEquals(b ast.BinaryNode) {
	inf.checkChoice(b.Left, b.Right)
	inf.checkChoice(b.Right, b.Left)
	inf.walk(b.Left, inf.typeOf(b.Right))
	inf.walk(b.Right, inf.typeOf(b.Left))
}

// checkChoice refuses to compare an attribute with a text that it never has.
func (inf *inference) checkChoice(attr, value ast.IsNode) {
	allowed, ok := choices[pathOf(attr)]
	if !ok {
		return
	}
	for _, v := range literals(value) {
		s, ok := v.(types.String)
		if ok && !slices.Contains(allowed, s) {
			inf.faults = append(inf.faults, fault{
				fmt.Sprintf("%s is never %q", pathOf(attr), string(s)),
				fmt.Sprintf("it is one of %q", allowed),
			})
		}
	}
}

// literals returns the values that n lists.
func literals(n ast.IsNode) []types.Value {
	switch n := n.(type) {
	case ast.NodeValue:
		if set, ok := n.Value.(types.Set); ok {
			return set.Slice()
		}
		return []types.Value{n.Value}
	case ast.NodeTypeSet:
		var out []types.Value
		for _, e := range n.Elements {
			out = append(out, literals(e)...)
		}
		return out
	}
	return nil
}

// pathOf writes a chain of accesses as text, "" for anything else.
func pathOf(n ast.IsNode) string {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		return string(n.Name)
	case ast.NodeTypeAccess:
		if p := pathOf(n.Arg); p != "" {
			return p + "." + string(n.Value)
		}
	}
	return ""
}

// use notes that an argument is used as a type.
func (inf *inference) use(s *shape, want resolved.IsType) {
	if s == inf.args || s == inf.texts {
		inf.faults = append(inf.faults, fault{s.path + " is used as a whole", "read single arguments: " + s.path + ".NAME"})
		return
	}
	typ, ok := unify(s.typ, want)
	if !ok || typ != nil && len(s.fields) > 0 {
		inf.faults = append(inf.faults, fault{
			fmt.Sprintf("%s is used as %s and as %s", s.path, typeName(s.typ), typeName(want)),
			"an argument has one type: compare it with values of that type only",
		})
		return
	}
	s.typ = typ
}

// unify joins two types, of which either may be unknown.
func unify(a, b resolved.IsType) (resolved.IsType, bool) {
	if a == nil {
		return b, true
	}
	if b == nil {
		return a, true
	}
	sa, aSet := a.(resolved.SetType)
	sb, bSet := b.(resolved.SetType)
	if aSet && bSet {
		elem, ok := unify(sa.Element, sb.Element)
		return resolved.SetType{Element: elem}, ok
	}
	if aSet || bSet {
		return nil, false
	}
	return a, typeName(a) == typeName(b)
}

func typeName(t resolved.IsType) string {
	switch t := t.(type) {
	case nil:
		return "a record or anything"
	case resolved.SetType:
		return "Set<" + typeName(t.Element) + ">"
	case resolved.ExtensionType:
		return string(t)
	}
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", t), "resolved."), "Type")
}

func elementOf(t resolved.IsType) resolved.IsType {
	if set, ok := t.(resolved.SetType); ok {
		return set.Element
	}
	return nil
}

func setLike(t resolved.IsType) resolved.IsType {
	if _, ok := t.(resolved.SetType); ok {
		return t
	}
	return resolved.SetType{}
}

// typeOf returns the type of n as far as n alone tells it, else nil.
func (inf *inference) typeOf(n ast.IsNode) resolved.IsType {
	switch n := n.(type) {
	case ast.NodeValue:
		return typeOfValue(n.Value)
	case ast.NodeTypeSet:
		for _, e := range n.Elements {
			if t := inf.typeOf(e); t != nil {
				return resolved.SetType{Element: t}
			}
		}
		return resolved.SetType{}
	case ast.NodeTypeIfThenElse:
		if t := inf.typeOf(n.Then); t != nil {
			return t
		}
		return inf.typeOf(n.Else)
	case ast.NodeTypeAdd, ast.NodeTypeSub, ast.NodeTypeMult, ast.NodeTypeNegate:
		return resolved.LongType{}
	case ast.NodeTypeAccess:
		if s := inf.argument(n); s != nil {
			return s.typ
		}
		return inf.attribute(n)
	case ast.NodeTypeVariable, ast.NodeTypeRecord, ast.NodeTypeExtensionCall, ast.NodeTypeGetTag:
		return nil
	}
	return resolved.BoolType{} // what is left are tests
}

func typeOfValue(v types.Value) resolved.IsType {
	switch v := v.(type) {
	case types.String:
		return resolved.StringType{}
	case types.Long:
		return resolved.LongType{}
	case types.Boolean:
		return resolved.BoolType{}
	case types.Set:
		for e := range v.All() {
			return resolved.SetType{Element: typeOfValue(e)}
		}
		return resolved.SetType{}
	}
	return nil
}

// attribute returns the type that the schema gives to principal.x, resource.x,
// context.x or context.risk.x.
func (inf *inference) attribute(n ast.NodeTypeAccess) resolved.IsType {
	var of resolved.RecordType
	switch {
	case isVariable(n.Arg, "principal"):
		of = inf.schema.Entities["Agent"].Shape
	case isVariable(n.Arg, "resource"):
		of = inf.schema.Entities["Tool"].Shape
	case isVariable(n.Arg, "context"):
		of = inf.schema.Actions[actions["call"].uid].AppliesTo.Context
	default:
		if parent, ok := n.Arg.(ast.NodeTypeAccess); ok {
			of, _ = inf.attribute(parent).(resolved.RecordType)
		}
	}
	return of[n.Value].Type
}
