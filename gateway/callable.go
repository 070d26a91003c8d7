package gateway

import (
	"fmt"

	"sallyport.dev/sallyport"
)

// callable refuses a tool that nobody may call now.
func callable(t sallyport.Tool) error {
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
