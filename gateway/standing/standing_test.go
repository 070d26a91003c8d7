package standing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/standing"
)

type answers func() error

func (a answers) Authenticate(context.Context, string, string) (sallyport.Principal, error) {
	return sallyport.Principal{}, a()
}

func TestWatch(t *testing.T) {
	for err, ends := range map[error]bool{
		nil: false, errors.New("the database is away"): false,
		&sallyport.Error{Code: sallyport.Unauthenticated, Message: "the token has expired"}:                             false,
		&sallyport.Error{Code: sallyport.Unauthenticated, Err: fmt.Errorf("%w: it is suspended", sallyport.ErrRevoked)}: true,
	} {
		synctest.Test(t, func(t *testing.T) {
			var now error
			ctx, _, over := standing.Watch(t.Context(), answers(func() error { return now }), sallyport.Request{})
			defer over()
			time.Sleep(3*standing.Every + 1)
			synctest.Wait()
			if ctx.Err() != nil {
				t.Fatalf("it ended though nothing happened: %v", context.Cause(ctx))
			}
			now = err
			time.Sleep(standing.Every)
			synctest.Wait()
			c, _ := errors.AsType[*sallyport.Cancellation](context.Cause(ctx))
			if (ctx.Err() != nil) != ends || ends && c.By != standing.Lost {
				t.Errorf("%v: %v", err, context.Cause(ctx))
			}
		})
	}
}

// Nobody looks after a call has ended, or leaves anything behind.
func TestOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		ctx, _, over := standing.Watch(t.Context(), answers(func() error { looks++; return sallyport.ErrRevoked }), sallyport.Request{})
		over()
		time.Sleep(10 * standing.Every)
		synctest.Wait()
		if looks != 0 || !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("%d looks, %v", looks, context.Cause(ctx))
		}
	})
}

type mute struct{}

func (mute) Authenticate(ctx context.Context, _, _ string) (sallyport.Principal, error) {
	<-ctx.Done()
	return sallyport.Principal{}, context.Cause(ctx)
}

// A look that gets no answer ends with the call.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _, over := standing.Watch(t.Context(), mute{}, sallyport.Request{})
		time.Sleep(10 * standing.Every)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Errorf("it ended though nobody answered: %v", context.Cause(ctx))
		}
		over()
	})
}
