package fake_test

import (
	"context"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/fake"
)

func TestConformance(t *testing.T) {
	named := func(name string) sallyport.Tool {
		return sallyport.Tool{Name: name, Origin: sallyport.Origin{Backend: "fake", Name: name}}
	}
	backendtest.Run(t, backendtest.Subject{
		Open: func(testing.TB) sallyport.Backend {
			return fake.New(func(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
				switch job.Tool.Name {
				case "echo":
					return fake.Echo(ctx, job)
				case "hang":
					return fake.Hang(ctx, job)
				case "fail":
					return fake.Failure("as asked"), nil
				}
				return sallyport.Output{}, sallyport.ErrNotExecuted
			})
		},
		Echo: named("echo"), Hang: named("hang"), Fail: named("fail"), Gone: named("gone"),
	})
}
