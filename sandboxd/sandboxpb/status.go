package sandboxpb

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sallyport.dev/sallyport"
)

// ToStatus carries a sallyport.Error over the wire. What is not ours is logged
// here and crosses as Internal without its text.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	r := &Refusal{
		Code: string(sallyport.Internal), Message: "the sandbox host failed", Hint: "see its log",
		NotExecuted: errors.Is(err, sallyport.ErrNotExecuted),
	}
	level := slog.LevelWarn
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		level = slog.LevelDebug // the gateway is told, and records it
		r.Code, r.Message, r.Hint, r.RetryAfterMs = string(e.Code), e.Message, e.Hint, e.RetryAfter.Milliseconds()
	}
	slog.Log(context.Background(), level, "request refused", "code", r.Code, "err", err)
	st, detailErr := status.New(grpcCode(sallyport.Code(r.Code)), r.Message).WithDetails(r)
	if detailErr != nil {
		return status.Error(codes.Internal, r.Message)
	}
	return st.Err()
}

func grpcCode(c sallyport.Code) codes.Code {
	switch c { // the rest has no closer equal; the detail says it
	case sallyport.Invalid, sallyport.TooLarge:
		return codes.InvalidArgument
	case sallyport.Unavailable:
		return codes.Unavailable
	case sallyport.Canceled:
		return codes.Aborted
	default:
		return codes.Internal
	}
}

// Refused reports whether a host itself refused, and not the connection to it.
func Refused(err error) bool {
	for _, d := range status.Convert(err).Details() {
		if _, ok := d.(*Refusal); ok {
			return true
		}
	}
	return false
}

// FromStatus turns what came over the wire back into a sallyport.Error. A
// broken connection is Unavailable; whether the job ran is then not known.
// Callers look at their own context first.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		r, ok := d.(*Refusal)
		if !ok {
			continue
		}
		e := &sallyport.Error{
			Code: sallyport.Code(r.Code), Step: sallyport.Execute, Message: r.Message, Hint: r.Hint,
			RetryAfter: time.Duration(r.RetryAfterMs) * time.Millisecond,
		}
		if r.NotExecuted {
			e.Err = sallyport.ErrNotExecuted
		}
		return e
	}
	switch st.Code() { // all others are the host's fault
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Execute, Message: "the sandbox host is gone",
			Hint: "restart sallyport", Err: err,
		}
	default:
		return &sallyport.Error{
			Code: sallyport.Internal, Step: sallyport.Execute, Message: "the sandbox host failed",
			Hint: "see its log", Err: err,
		}
	}
}

// GatewayKey is the name of the metadata by which a gateway says who it is: a
// secret that only it knows, the same after a restart. What one gateway keeps no
// other finds.
const GatewayKey = "sallyport-gateway"
