// Package refusal words what callers are told of what is not there for them, of
// what cannot be called now, and of calls that may not run.
package refusal

import (
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
)

// Callable refuses a tool that nobody may call now.
func Callable(t sallyport.Tool) error {
	switch t.Status {
	case sallyport.ToolActive:
		return nil
	case sallyport.ToolRetired:
		hint := "list the tools"
		if d := t.Manifest.Deprecated; d != nil && d.Use != "" {
			hint = "use " + d.Use
		}
		return &sallyport.Error{
			Code: sallyport.Denied, Step: sallyport.Resolve,
			Message: fmt.Sprintf("tool %q is retired: %s", t.Name, t.StatusReason), Hint: hint,
		}
	default:
		return &sallyport.Error{
			Code: sallyport.Quarantined, Step: sallyport.Resolve,
			Message: fmt.Sprintf("tool %q is quarantined: %s", t.Name, t.StatusReason),
			Hint:    "an operator can look at it with `sallyport tools diff` and release it with `sallyport tools approve`",
		}
	}
}

// Unknown says that something is not there. The same words whether it does not
// exist or is not theirs.
func Unknown(op sallyport.Operation, name string) error {
	what, list := "tool", "tools"
	switch op.Kind {
	case sallyport.ReadResource, sallyport.Subscribe:
		what, list = "resource", "resources"
	case sallyport.GetPrompt:
		what, list = "prompt", "prompts"
	case sallyport.Complete:
		what, list = "prompt or template", "prompts and templates"
	default:
	}
	return &sallyport.Error{
		Code: sallyport.NotFound, Step: sallyport.Resolve,
		Message: fmt.Sprintf("unknown %s %q", what, short(name)),
		Hint:    "list the " + list + ": the name may have changed, its server may not be up yet, or you may not be allowed to use it",
	}
}

func short(name string) string {
	const most = 64
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}
