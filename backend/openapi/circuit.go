package openapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/breaker"
)

// call makes one call, unless the API has failed so often in a row that it gets
// none for now.
func (a *api) call(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	said, wait, ok := a.circuit.Enter()
	if !ok {
		return sallyport.Output{}, a.cutOff(wait)
	}
	out, status, err := a.make(ctx, job)
	said(verdict(ctx, status, err))
	return out, err
}

func (a *api) cutOff(wait time.Duration) *sallyport.Error {
	return outcome.CutOff(a.Name, wait, "were not served")
}

// verdict is what a call's end says of the API. status is that of its answer, 0 if
// there was none. Only the statuses of what stands before an API, or of one that
// is not there, count against it: any other is an answer.
func verdict(ctx context.Context, status int, err error) breaker.Verdict {
	_, ours := errors.AsType[refused](err)
	switch {
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return breaker.Failed
	case err == nil, errors.Is(err, errTooLarge), errors.Is(err, errPacked):
		return breaker.Served
	case ours, sallyport.CodeOf(err) == sallyport.Invalid:
		return breaker.Untold
	case outcome.IsContext(err) || ctx.Err() != nil:
		if status == 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, sallyport.ErrNotExecuted) {
			return breaker.Failed // it took the call, and did not begin to answer
		}
		return breaker.Untold
	}
	return breaker.Failed
}
