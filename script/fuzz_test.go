package script_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/script"
	"sallyport.dev/sallyport/script/frame"
)

// A counter is a path that lets everything through.
type counter struct{ now, most, all atomic.Int64 }

func (c *counter) Call(_ context.Context, req sallyport.Request) (sallyport.Result, error) {
	defer c.now.Add(-1)
	if n := c.now.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	c.all.Add(1)
	return sallyport.Result{CallID: "call_x", Content: json.RawMessage(`{"content":[]}`)}, nil
}

func (*counter) ScriptKeys(context.Context, string, string, string) ([]sallyport.ReservationKey, error) {
	return nil, nil
}

func (*counter) See(sallyport.Principal, string, sallyport.Shelf) (sallyport.Sight, error) {
	return sallyport.Sight{List: []sallyport.Tool{toolOf("look")}}, nil
}
func (*counter) Still(context.Context, sallyport.Job) error { return nil }

// Whatever a program says, calls are numbered and bounded, each is told with its
// number, and the run can be closed.
func FuzzHear(f *testing.F) {
	f.Add([]byte(`{"n":1,"tool":"look","args":{}}`+"\n"+`{"n":2,"tool":"look","args":{"a":[1]}}`+"\n"), 7)
	f.Add([]byte(`{"n":1,"tool":"\u0000","args":1}`+"\n\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		c := &counter{}
		e := script.Engine{Seal: &script.Seal{Door: c}, Path: c, Past: c}
		r, err := e.Open(t.Context(), sallyport.Job{Tool: toolOf("run"), Who: sallyport.Principal{Tenant: "t", ID: "ann"}}, []string{"*"})
		if err != nil {
			t.Fatal(err)
		}
		size = max(1, size%100)
		for b := in; len(b) > 0; {
			n := min(size, len(b))
			r.Hear(b[:n])
			b = b[n:]
		}
		calls, stopped, _ := r.Close()
		if int64(len(calls)) != c.all.Load() || len(calls) > frame.MaxCalls || c.most.Load() > frame.AtOnce {
			t.Fatalf("%d calls, %d made, %d at once", len(calls), c.all.Load(), c.most.Load())
		}
		for i, call := range calls {
			if call.N != i+1 {
				t.Fatalf("%+v", calls)
			}
		}
		if stopped != nil && stopped.Code != sallyport.Invalid && stopped.Code != sallyport.RateLimited {
			t.Fatal(stopped)
		}
		r.Hear([]byte(`{"n":1,"tool":"look","args":{}}` + "\n"))
		if again, _, _ := r.Close(); len(again) != len(calls) {
			t.Fatal("a call after the end")
		}
	})
}
