package refusal

import (
	"strings"

	"sallyport.dev/sallyport"
)

// Policy says why policies do not allow a call, or could not be asked.
func Policy(reasons []string, err error) error {
	if len(reasons) == 0 {
		reasons = []string{"no policy allows this"}
	}
	e := &sallyport.Error{
		Code: sallyport.Denied, Step: sallyport.Authorize, Err: err,
		Message: strings.Join(reasons, "; "),
		Hint:    "an operator can see why with `sallyport audit search` and change policies/*.cedar",
	}
	if err != nil && sallyport.CodeOf(err) == sallyport.NotFound {
		e.Code, e.Hint = sallyport.NotFound, "list the tools: after a start of the gateway a server's are not there at once"
	}
	return e
}

// Overtaken says that what a call was judged by does not hold any more.
func Overtaken(err error) error {
	return &sallyport.Error{
		Code: sallyport.Denied, Step: sallyport.Execute, Err: err,
		Message: "a policy or the tool changed while the call was on its way",
		Hint:    "call again: it will be judged by what holds now",
	}
}
