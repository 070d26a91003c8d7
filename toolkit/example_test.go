package toolkit_test

import (
	"context"
	"log"
	"sync"

	"sallyport.dev/sallyport/toolkit"
)

type order struct {
	ID int64 `json:"id" jsonschema:"number of the order"`
}

type cancelled struct {
	ID   int64  `json:"id"`
	Note string `json:"note"`
}

// A server with one tool. Configure it as an upstream:
//
//	servers:
//	  orders:
//	    command: /usr/local/bin/orders
func Example() {
	s := toolkit.New("orders", "1.0.0")
	var (
		mu   sync.Mutex
		done = map[string]cancelled{} // by idempotency key; a real tool keeps it in its database
	)
	toolkit.Tool(s, "cancel", "Cancel an order.", func(_ context.Context, call toolkit.Call, in order) (cancelled, error) {
		mu.Lock()
		defer mu.Unlock()
		if before, again := done[call.Key]; again && call.Key != "" {
			return before, nil
		}
		out := cancelled{ID: in.ID, Note: "cancelled by call " + call.ID}
		done[call.Key] = out
		return out, nil
	})
	if err := s.ServeStdio(context.Background()); err != nil {
		log.Fatal(err)
	}
}
