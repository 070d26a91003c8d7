package result

import (
	"encoding/json"
	"errors"
	"fmt"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// maxValues is how many completions there may be at once, by the protocol.
const maxValues = 100

// Reading gives what was read the form of a tool's result; see sallyport.Output.
// The error says what is wrong with an answer that cannot be used.
func Reading(kind sallyport.Kind, raw json.RawMessage) (sallyport.Output, error) {
	if !wire.IsObject(raw) {
		return sallyport.Output{}, fmt.Errorf("the result is not an object but %.40s", raw)
	}
	raw = present(raw)
	if v := wire.Member(raw, "resultType"); v != nil {
		if s, _ := wire.String(v); s != "complete" {
			return sallyport.Output{}, fmt.Errorf("the result is of type %.40s, which this gateway did not ask for", v)
		}
	}
	var b []byte
	var err error
	switch kind {
	case sallyport.ReadResource:
		b, err = contents(wire.Member(raw, "contents"))
	case sallyport.GetPrompt:
		b, err = messages(raw)
	default:
		b, err = completions(wire.Member(raw, "completion"))
	}
	if err != nil {
		return sallyport.Output{}, err
	}
	if meta := wire.Member(raw, "_meta"); wire.IsObject(meta) {
		b = append(append(b, `,"_meta":`...), meta...)
	}
	return sallyport.Output{Content: append(b, '}')}, nil
}

func contents(list json.RawMessage) ([]byte, error) {
	if len(list) == 0 || list[0] != '[' {
		return nil, errors.New("it has no contents")
	}
	b := []byte(`{"content":[`)
	i := 0
	for part := range wire.Elements(list) {
		uri, ok := wire.String(wire.Member(part, "uri"))
		text, blob := wire.Member(part, "text"), wire.Member(part, "blob")
		if !ok || uri == "" || !isString(text) && !isString(blob) || text != nil && blob != nil {
			return nil, fmt.Errorf("contents[%d] needs a uri, and either a text or a blob", i)
		}
		if i++; i > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"type":"resource","resource":`...), part...), '}')
	}
	return append(b, ']'), nil
}

func isString(v json.RawMessage) bool { return len(v) > 0 && v[0] == '"' }

func messages(raw json.RawMessage) ([]byte, error) {
	list := wire.Member(raw, "messages")
	if len(list) == 0 || list[0] != '[' {
		return nil, errors.New("it has no messages")
	}
	b, roles := []byte(`{"content":[`), []byte(`[`)
	i := 0
	for m := range wire.Elements(list) {
		role, _ := wire.String(wire.Member(m, "role"))
		if role != "user" && role != "assistant" {
			return nil, fmt.Errorf("messages[%d] has the role %.40s", i, wire.Member(m, "role"))
		}
		content := wire.Member(m, "content")
		if wrong := faultyItem(content); wrong != "" {
			return nil, fmt.Errorf("the content of messages[%d] %s", i, wrong)
		}
		if i++; i > 1 {
			b, roles = append(b, ','), append(roles, ',')
		}
		b, roles = append(b, content...), wire.AppendString(roles, role)
	}
	b = append(append(append(b, `],"structuredContent":{"roles":`...), roles...), ']')
	if v := wire.Member(raw, "description"); isString(v) {
		b = append(append(b, `,"description":`...), v...)
	}
	return append(b, '}'), nil
}

func completions(c json.RawMessage) ([]byte, error) {
	values := wire.Member(c, "values")
	if len(values) == 0 || values[0] != '[' {
		return nil, errors.New("it has no completion with values")
	}
	b := []byte(`{"content":[],"structuredContent":{"completion":{"values":[`)
	i := 0
	for v := range wire.Elements(values) {
		if !isString(v) {
			return nil, fmt.Errorf("completion.values[%d] is not a string", i)
		}
		if i == maxValues {
			break
		}
		if i++; i > 1 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	b = append(b, ']')
	for _, name := range []string{"total", "hasMore"} {
		if v := wire.Member(c, name); v != nil && !wire.IsNull(v) {
			b = append(append(append(append(b, `,"`...), name...), `":`...), v...)
		}
	}
	return append(b, "}}"...), nil
}
