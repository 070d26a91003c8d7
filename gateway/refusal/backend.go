package refusal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
)

// Backend gives a backend's failure a code and words.
func Backend(ctx context.Context, mutating bool, err error) error {
	var e sallyport.Error
	if ours, ok := errors.AsType[*sallyport.Error](err); ok {
		e = *ours
	} else {
		e = sallyport.Error{Code: sallyport.Upstream, Message: "the tool's backend failed", Err: err}
	}
	e.Step = sallyport.Execute
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		e.Code, e.Message = sallyport.Timeout, "the tool did not answer in time"
	case errors.Is(err, context.Canceled):
		e.Code, e.Message = sallyport.Canceled, "the caller went away"
	}
	if !mutating { // backends do not know that
		e.Hint, _, _ = strings.Cut(e.Hint, "the call may have taken effect")
		e.Hint = cmp.Or(strings.TrimSuffix(e.Hint, "; "), "try again")
	}
	if mutating && !errors.Is(err, sallyport.ErrNotExecuted) {
		e.Message = fmt.Sprintf("%s; the call may have acted, and it is not known whether it did", e.Message)
		e.Hint = "do not repeat it blindly: check the effect; an operator settles it with `sallyport reservations resolve`"
		e.Code = sallyport.OutcomeUnknown
	}
	return &e
}
