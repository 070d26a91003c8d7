package web

import (
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// graphql judges a text that is a GraphQL document: a mutation changes
// something, and its fields' names say what.
func (b *body) graphql(text string) {
	if !strings.Contains(text, "mutation") && !strings.Contains(text, "subscription") {
		return
	}
	for _, op := range operations(text) {
		switch op.kind {
		case "mutation":
			b.found.Effect(sallyport.EffectWrite)
			b.found.Part("", "mutation", strings.Join(op.fields, ", "))
			b.found.Add(sallyport.High, "a GraphQL mutation changes something: %s", strings.Join(op.fields, ", "))
			for _, f := range op.fields {
				if removes(f) {
					b.found.Effect(sallyport.EffectDelete)
					b.found.Lost("the GraphQL mutation %s takes something away or sends it", f)
				}
			}
		case "subscription":
			b.found.Add(sallyport.High, "a GraphQL subscription stays open")
		}
	}
}

// An operation is one definition of a GraphQL document and the fields that it
// asks for at its root.
type operation struct {
	kind   string
	fields []string
}

// operations reads a document as far as it takes to see its operations. What is
// no document has none. (spec.graphql.org, October 2021, sections 2.1 and 2.3)
func operations(text string) (out []operation) {
	depth, parens := 0, 0
	var op *operation
	for i, t := range tokens(text) {
		switch t {
		case "(":
			parens++
		case ")":
			parens--
		case "{":
			if parens > 0 {
				continue
			}
			if i == 0 {
				op = &operation{kind: "query"} // as the shorthand has it
			}
			if depth++; depth == 1 && op == nil {
				return out // no operation stands before it: not ours to read
			}
		case "}":
			if parens > 0 {
				continue
			}
			if depth--; depth == 0 && op != nil {
				out, op = append(out, *op), nil
			}
			if depth < 0 {
				return out
			}
		default:
			name := t[0] == '_' || t[0] >= 'A' && t[0] <= 'Z' || t[0] >= 'a' && t[0] <= 'z'
			switch {
			case parens > 0 || !name && t != ":":
			case depth == 0 && op == nil:
				switch t {
				case "mutation", "query", "subscription", "fragment":
					op = &operation{kind: t}
				default:
					return out
				}
			case depth == 1 && t == ":" && len(op.fields) > 0: // what came before was an alias
				op.fields = op.fields[:len(op.fields)-1]
			case depth == 1 && op != nil && len(op.fields) < 64:
				op.fields = append(op.fields, t)
			}
		}
		if depth > sallyport.MaxDepth {
			return out
		}
	}
	return out
}

// tokens cuts a GraphQL document into names and signs. Comments, commas, strings
// and numbers are left out.
func tokens(s string) (out []string) {
	for i := 0; i < len(s) && len(out) < 20000; {
		switch c := s[i]; {
		case c == '#':
			for i < len(s) && s[i] != '\n' && s[i] != '\r' {
				i++
			}
		case strings.HasPrefix(s[i:], `"""`):
			end := strings.Index(s[i+3:], `"""`)
			if end < 0 {
				return out
			}
			i += end + 6
		case c == '"':
			for i++; i < len(s) && s[i] != '"' && s[i] != '\n'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
			i++
		case c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z':
			start := i
			for i < len(s) && (s[i] == '_' || s[i] >= '0' && s[i] <= '9' || s[i] >= 'A' && s[i] <= 'Z' || s[i] >= 'a' && s[i] <= 'z') {
				i++
			}
			out = append(out, s[start:i])
		case c == '$' || c == '@': // a variable or a directive, with its name
			for i++; i < len(s) && (s[i] == '_' || s[i] >= '0' && s[i] <= '9' || s[i] >= 'A' && s[i] <= 'Z' || s[i] >= 'a' && s[i] <= 'z'); i++ {
			}
		case strings.IndexByte("(){}:", c) >= 0:
			out = append(out, s[i:i+1])
			i++
		default:
			i++
		}
	}
	return out
}

// Document judges a text that may be a GraphQL document, or JSON that holds one.
func Document(text string) sallyport.Risk {
	var l finding.List
	(&body{found: &l, budget: maxInner}).graphql(text)
	return l.Risk()
}
