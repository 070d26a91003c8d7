package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport/failpoint"
)

// A siege kills the gateway of a house again and again, while clients are at work.

// A blow is one kill: POINT or POINT:N at a failpoint, or "start 120ms" and
// "ready 437ms", at a random moment after a start or after the gateway was ready.
type blow string

func (b blow) moment() (from string, after time.Duration, ok bool) {
	from, rest, ok := strings.Cut(string(b), " ")
	after, err := time.ParseDuration(rest)
	return from, after, ok && err == nil
}

// often is how many times a life of a gateway meets the points that it meets
// again and again. Others are met once for each thing that a client does.
var often = map[string]int{
	failpoint.Commit: 40, failpoint.Committed: 40, failpoint.Published: 40,
	failpoint.Begun: 8, failpoint.Finish: 8, failpoint.Finished: 8, failpoint.Moved: 8, failpoint.Move: 8,
	failpoint.Leased: 3, failpoint.Opened: 2, failpoint.Decide: 2, failpoint.Decided: 2, failpoint.Noticed: 2, failpoint.Settle: 2,
}

// blows are so many sweeps over all failpoints but one (see forget) and so many
// random moments, in random order.
func blows(random *rand.Rand, sweeps, moments int) (all []blow) {
	for range sweeps {
		for _, point := range failpoint.All {
			if point != failpoint.Pruned {
				all = append(all, blow(fmt.Sprintf("%s:%d", point, 1+random.IntN(max(1, often[point])))))
			}
		}
	}
	for i := range moments {
		from, within := "ready", 700
		if i%6 == 5 {
			from, within = "start", 300
		}
		all = append(all, blow(fmt.Sprintf("%s %dms", from, random.IntN(within))))
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// seedOf is a new one, or the one to repeat. It chooses the blows, not the
// machine's schedule.
func seedOf(t *testing.T, n int) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("SALLYPORT_CRASH_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("SALLYPORT_CRASH_SEED=%d repeats these blows (house %d)", seed, n)
	return rand.New(rand.NewPCG(seed, uint64(n)))
}

const lanesOfClients = 3

// besiege deals the blows while clients play stories, and lets them come to
// their end with the gateway that lives last. That goes on running.
func (h *house) besiege(all []blow) {
	over := make(chan struct{})
	var lanes sync.WaitGroup
	for lane := range lanesOfClients {
		lanes.Go(func() {
			for i := 0; ; i++ {
				h.tell(h.play(fmt.Sprintf("m%dx%d", lane, i)))
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	for _, b := range all {
		began := time.Now()
		h.strike(b)
		h.t.Logf("%4d ms: %s", time.Since(began).Milliseconds(), b)
	}
	h.change("UPDATE webhook_notices SET next_at = 0 WHERE state = 'waiting'") // what the dead had claimed, a minute later
	h.run("")
	close(over)
	lanes.Wait()
}

// strike starts the gateway and kills it.
func (h *house) strike(b blow) {
	h.t.Helper()
	before := h.killed()
	from, after, random := b.moment()
	var ended chan struct{}
	switch {
	case !random:
		ended, _ = h.run(string(b))
	case from == "start":
		ended, _ = h.launch("")
		time.Sleep(after)
		h.kill()
	default:
		ended, _ = h.run("")
		time.Sleep(after)
		h.kill()
	}
	select {
	case <-ended:
	case <-time.After(enough):
		h.t.Errorf("%s: it is not reached", b)
		h.kill()
		<-ended
	}
	if h.killed() != before+1 {
		h.t.Errorf("%s: not killed", b)
	}
}

// killed counts.
func (h *house) killed() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.kills {
		n += k
	}
	return n
}

// tell keeps a story for the judge.
func (h *house) tell(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.err != nil {
		h.t.Error(c.err)
	}
	h.stories = append(h.stories, c.story)
	h.settled += c.settled
}
