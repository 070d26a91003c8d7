package catalog

import (
	"context"
	"fmt"
)

// MaxFirst bounds how much of one server is pinned at first sight while a gateway
// runs: one whose list is another each time must not fill the disk.
const MaxFirst = 50_000

// Firsts pins what is seen for the first time. Its zero value is ready for use, by one
// goroutine at a time.
type Firsts struct{ pinned map[string]int }

// Pin pins what is new of a server, or says why it must wait for a human.
func (f *Firsts) Pin(ctx context.Context, pins Pins, server string, news map[string]Pin) (why string) {
	switch {
	case len(news) == 0:
		return ""
	case f.pinned[server]+len(news) > MaxFirst:
		return fmt.Sprintf("its server has listed more than %d things that nobody saw before since the gateway started; approve what is meant", MaxFirst)
	case pins.PutPins(ctx, server, news) != nil:
		return "its pin cannot be stored"
	}
	if f.pinned == nil {
		f.pinned = map[string]int{}
	}
	f.pinned[server] += len(news)
	return ""
}
