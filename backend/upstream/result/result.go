// Package result judges what a server answered, and gives it one form.
package result

import (
	"encoding/json"
	"fmt"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/wire"
)

// Output takes a result of tools/call. A well-formed one passes byte for byte, but for
// what is null in it; anything else becomes a tool error that says what is wrong.
func Output(result json.RawMessage) sallyport.Output {
	result = present(result)
	if wrong := faulty(result); wrong != "" {
		return Malformed(wrong)
	}
	return sallyport.Output{Content: result, IsError: string(wire.Member(result, "isError")) == "true"}
}

// Malformed is the tool error in place of an answer that cannot be used.
func Malformed(wrong string) sallyport.Output {
	text := "The server's answer cannot be used: " + line.Printable(wrong, 500) + ". The call may have taken effect; look before you call again."
	b := wire.AppendString([]byte(`{"content":[{"type":"text","text":`), text)
	b = append(b, `}],"structuredContent":{"code":"upstream_error","step":"execute","message":`...)
	return sallyport.Output{Content: append(wire.AppendString(b, text), `},"isError":true}`...), IsError: true, Unclear: true}
}

// faulty says what is wrong with a result, "" if nothing is.
func faulty(result json.RawMessage) string {
	if !wire.IsObject(result) {
		return fmt.Sprintf("the result is not an object but %.40s", result)
	}
	content := json.RawMessage(nil)
	for name, v := range wire.Members(result) {
		switch string(name) {
		case "content":
			content = v
		case "isError":
			if s := string(v); s != "true" && s != "false" {
				return fmt.Sprintf("isError is %.40s", v)
			}
		case "resultType":
			if s, _ := wire.String(v); s != "complete" {
				return fmt.Sprintf("the result is of type %.40s, which this gateway did not ask for", v)
			}
		}
	}
	switch {
	case content == nil:
		return "the result has no content"
	case content[0] != '[':
		return fmt.Sprintf("content is not a list but %.40s", content)
	}
	i := 0
	for item := range wire.Elements(content) {
		if wrong := faultyItem(item); wrong != "" {
			return fmt.Sprintf("content item %d %s", i, wrong)
		}
		i++
	}
	return ""
}

func faultyItem(item json.RawMessage) string {
	if !wire.IsObject(item) {
		return fmt.Sprintf("is not an object but %.40s", item)
	}
	kind, _ := wire.String(wire.Member(item, "type"))
	var needs []string
	switch kind {
	case "text":
		needs = []string{"text"}
	case "image", "audio":
		needs = []string{"data", "mimeType"}
	case "resource_link":
		needs = []string{"uri"}
	case "resource":
		if inner := wire.Member(item, "resource"); !wire.IsObject(inner) {
			return "of type resource has none"
		}
	default:
		return fmt.Sprintf("has the unknown type %.40s", wire.Member(item, "type"))
	}
	for _, name := range needs {
		if v := wire.Member(item, name); len(v) == 0 || v[0] != '"' {
			return fmt.Sprintf("of type %s has no %s", kind, name)
		}
	}
	return ""
}
