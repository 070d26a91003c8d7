// Package reading turns the methods that read (resources/read, prompts/get,
// completion/complete) into operations, and what came back into their results.
package reading

import (
	"encoding/json"
	"errors"
	"fmt"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// Operation reads the parameters of a method. The error says what is wrong with
// them.
func Operation(kind sallyport.Kind, params json.RawMessage) (op sallyport.Operation, err error) {
	op.Kind = kind
	ok := false
	switch kind {
	case sallyport.ReadResource:
		if op.Target, ok = wire.String(wire.Member(params, "uri")); !ok || op.Target == "" {
			return op, errors.New("params.uri must be a string: the resource to read")
		}
	case sallyport.GetPrompt:
		if op.Target, ok = wire.String(wire.Member(params, "name")); !ok || op.Target == "" {
			return op, errors.New("params.name must be a string: the prompt to get")
		}
		if args := wire.Member(params, "arguments"); args != nil && !wire.IsNull(args) {
			op.Args = args
		}
	default:
		return completion(params)
	}
	return op, nil
}

func completion(params json.RawMessage) (op sallyport.Operation, err error) {
	op.Kind = sallyport.Complete
	ref := wire.Member(params, "ref")
	by := map[string]string{"ref/prompt": "name", "ref/resource": "uri"}
	kind, _ := wire.String(wire.Member(ref, "type"))
	ok := false
	if op.Target, ok = wire.String(wire.Member(ref, by[kind])); !ok || op.Target == "" {
		return op, errors.New(`params.ref must be {"type": "ref/prompt", "name": …} or {"type": "ref/resource", "uri": …}`)
	}
	b := []byte(`{"ref":`)
	b = append(b, ref...)
	for _, name := range []string{"argument", "context"} {
		if v := wire.Member(params, name); v != nil && !wire.IsNull(v) {
			b = append(append(append(append(b, `,"`...), name...), `":`...), v...)
		}
	}
	op.Args = append(b, '}')
	return op, nil
}

// Result gives a clean result (see sallyport.Output) the form of its method.
func Result(op sallyport.Operation, content json.RawMessage) (json.RawMessage, error) {
	if !wire.IsObject(content) {
		return nil, errors.New("the result's content is not a JSON object")
	}
	var b []byte
	switch op.Kind {
	case sallyport.ReadResource:
		b = contents(content, op.Target)
	case sallyport.GetPrompt:
		b = prompt(content)
	default:
		c := wire.Path(content, "structuredContent", "completion")
		if c == nil { // it was too large to keep
			c = json.RawMessage(`{"values":[],"hasMore":true}`)
		}
		b = append([]byte(`{"completion":`), c...)
	}
	if meta := wire.Member(content, "_meta"); meta != nil {
		b = append(append(b, `,"_meta":`...), meta...)
	}
	return append(b, '}'), nil
}

// contents are the parts of a resource. What else is there says what was cut
// off.
func contents(content json.RawMessage, asked string) []byte {
	b := []byte(`{"contents":[`)
	comma := ""
	for block := range wire.Elements(wire.Member(content, "content")) {
		b, comma = append(b, comma...), ","
		if part := wire.Member(block, "resource"); wire.IsObject(part) {
			b = append(b, part...)
			continue
		}
		text, _ := wire.String(wire.Member(block, "text"))
		b = wire.AppendString(append(b, `{"uri":`...), asked)
		b = append(wire.AppendString(append(b, `,"mimeType":"text/plain","text":`...), text), '}')
	}
	return append(b, ']')
}

func prompt(content json.RawMessage) []byte {
	var roles []string
	for r := range wire.Elements(wire.Path(content, "structuredContent", "roles")) {
		role, _ := wire.String(r)
		roles = append(roles, role)
	}
	b := []byte(`{`)
	if d := wire.Path(content, "structuredContent", "description"); d != nil {
		b = append(append(append(b, `"description":`...), d...), ',')
	}
	b = append(b, `"messages":[`...)
	i := 0
	for block := range wire.Elements(wire.Member(content, "content")) {
		role := "user" // of what says that something was cut off
		if i < len(roles) && roles[i] == "assistant" {
			role = roles[i]
		}
		if i++; i > 1 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"role":%q,"content":`, role)
		b = append(append(b, block...), '}')
	}
	return append(b, ']')
}
