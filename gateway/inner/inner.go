// Package inner reads calls of call_tool, which stand for calls of the tool that
// they name: from there on the path knows nothing of call_tool.
package inner

import (
	"encoding/json"
	"errors"

	"sallyport.dev/sallyport"
)

// Call returns the tool that the arguments of call_tool name, and what to give it.
func Call(args json.RawMessage) (name string, inner json.RawMessage, err error) {
	var in struct {
		Name      *string         `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	canonical, err := sallyport.Canonical(args)
	if err != nil {
		return "", nil, wrong(err)
	}
	var members map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(canonical, &members), json.Unmarshal(canonical, &in)); err != nil {
		return "", nil, wrong(err)
	}
	for member := range members {
		if member != "name" && member != "arguments" {
			return "", nil, wrong(nil)
		}
	}
	if in.Name == nil || *in.Name == "" || len(in.Arguments) > 0 && in.Arguments[0] != '{' {
		return "", nil, wrong(nil)
	}
	return *in.Name, in.Arguments, nil
}

func wrong(err error) error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Validate, Err: err,
		Message: `call_tool needs {"name": "…", "arguments": {…}} and nothing else`,
		Hint:    "find the tool's name and the schema of its arguments with search_tools",
	}
}
