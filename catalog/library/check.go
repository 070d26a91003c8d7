package library

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// Check checks canonical arguments of a reading: those of a prompt are texts
// that it declares, all that it requires among them; those of a completion name
// an argument and how it begins.
func (l *Library) Check(t sallyport.Tool, kind sallyport.Kind, args json.RawMessage) error {
	wrong := ""
	switch kind {
	case sallyport.GetPrompt:
		wrong = promptArgs(t, args)
	case sallyport.Complete:
		wrong = completion(args)
	default:
	}
	if wrong == "" {
		return nil
	}
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Validate, Message: fmt.Sprintf("%s: %s", t.Shown(), wrong),
		Hint: "see the prompt's arguments in prompts/list",
	}
}

func promptArgs(t sallyport.Tool, args json.RawMessage) string {
	if wrong := texts(args); wrong != "" {
		return wrong
	}
	var declared []string
	for a := range wire.Elements(t.InputSchema) {
		name, _ := wire.String(wire.Member(a, "name"))
		declared = append(declared, name)
		if string(wire.Member(a, "required")) == "true" && wire.Member(args, name) == nil {
			return fmt.Sprintf("the argument %q is missing", name)
		}
	}
	for name := range wire.Members(args) {
		if !slices.Contains(declared, string(name)) {
			return fmt.Sprintf("there is no argument %.80q; there are: %s", name, strings.Join(declared, ", "))
		}
	}
	return ""
}

// texts reports what is wrong with an object of strings, "" if nothing is.
func texts(object json.RawMessage) string {
	for name, v := range wire.Members(object) {
		if _, ok := wire.String(v); !ok {
			return fmt.Sprintf("the argument %.80q must be a string", name)
		}
	}
	return ""
}

func completion(args json.RawMessage) string {
	name, ok := wire.String(wire.Path(args, "argument", "name"))
	if !ok || name == "" {
		return "argument.name must be a string: which argument goes on"
	}
	if _, ok := wire.String(wire.Path(args, "argument", "value")); !ok {
		return "argument.value must be a string: how it begins"
	}
	context := wire.Member(args, "context")
	if given := wire.Member(context, "arguments"); context != nil && (!wire.IsObject(context) || given != nil && !wire.IsObject(given)) {
		return "context.arguments must be an object"
	}
	return texts(wire.Path(args, "context", "arguments"))
}
