package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/entry"
	"sallyport.dev/sallyport/test/await"
)

// A client is one principal, whose user says who it is.
type client struct {
	t     *testing.T
	b     *upstream.Backend
	name  string
	asked atomic.Int32
	waits chan struct{} // if set, the user answers once it is closed
}

func (c *client) job(tool, args string) sallyport.Job {
	j := jobOf(sallyport.Principal{Tenant: "t", ID: c.name}, tool, args)
	j.Can = sallyport.Abilities{Form: true, Roots: true}
	j.Ask = func(ctx context.Context, q []sallyport.Question) ([]sallyport.Answer, error) {
		c.asked.Add(1)
		if c.waits != nil {
			select {
			case <-c.waits:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return []sallyport.Answer{{Result: []byte(`{"action":"accept","content":{"who":"` + c.name + `"}}`)}}, nil
	}
	return j
}

func (c *client) run(tool, args string) string {
	c.t.Helper()
	out, err := c.b.Run(c.t.Context(), c.job(tool, args))
	if err != nil {
		c.t.Errorf("%s of %s: %v", tool, c.name, err)
		return ""
	}
	text, err := backendtest.Text(out)
	if err != nil {
		c.t.Error(err)
	}
	return text
}

// asks runs a call in the middle of which the server asks, and says what it was answered.
func (c *client) asks(id int) string { return c.run("await", fmt.Sprintf(`{"id":%d}`, id)) }

func clients(t *testing.T, b *upstream.Backend, names ...string) (all []*client) {
	for _, n := range names {
		all = append(all, &client{t: t, b: b, name: n})
	}
	return all
}

const noOnesQuestion = `"code":-32600,"message":"nobody knows which call this belongs to: several callers`

// A program that asks without saying for which call is a process of its own for each
// caller, where all of them ask at once, and each client hears its own questions only.
func TestAProgramThatAsksIsOneForEachCaller(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "legacy"))
	cs := clients(t, b, "ann", "bob", "cy")
	ann, bob := cs[0], cs[1]
	ann.run("echo", "{}")
	pids := map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(func() {
			for i := range 3 {
				if got := c.asks(i); !strings.Contains(got, `"who":"`+c.name+`"`) {
					t.Errorf("%s gets %s", c.name, got)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			pids[c.run("pid", "{}")] = c.name
		})
	}
	wg.Wait()
	if len(pids) != 3 {
		t.Errorf("three callers, processes %v", pids)
	}
	if ann.asked.Load() != 3 || bob.asked.Load() != 3 {
		t.Errorf("asked %d and %d times", ann.asked.Load(), bob.asked.Load())
	}
	// Who has no client to ask has a process of its own, too.
	out, err := b.Run(t.Context(), jobOf(sallyport.Principal{Tenant: "t", ID: "ann"}, "pid", "{}"))
	if text, _ := backendtest.Text(out); err != nil || pids[text] != "ann" {
		t.Errorf("ann's other call runs in %s's process (%v)", pids[text], err)
	}
}

// Who is alone with a program keeps the process that there is, and what it holds.
func TestTheFirstKeepsItsProcess(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "legacy"))
	cs := clients(t, b, "ann", "bob")
	ann, bob := cs[0], cs[1]
	before := ann.run("pid", "{}")
	if got := ann.asks(1); !strings.Contains(got, `"who":"ann"`) {
		t.Errorf("alone: %s", got)
	}
	if got := bob.asks(2); !strings.Contains(got, `"who":"bob"`) {
		t.Errorf("the next one: %s", got)
	}
	if got := ann.run("pid", "{}"); got != before {
		t.Errorf("process %s became %s", before, got)
	}
	if got := bob.run("pid", "{}"); got == before {
		t.Error("both have the same process")
	}
}

// Who says that callers share a program has one process, which asks nobody while several
// use it.
func TestASharedProgramAsksNobody(t *testing.T) {
	t.Parallel()
	c := server("s", "legacy")
	c.Processes = entry.One
	cs := clients(t, open(t, options(), c), "ann", "bob")
	ann, bob := cs[0], cs[1]
	first := ann.run("pid", "{}")
	for i := range 2 {
		if got := bob.asks(i); !strings.Contains(got, noOnesQuestion) || !strings.Contains(got, "let the call be made again") {
			t.Errorf("asked while others had used it: %s", got)
		}
	}
	if bob.run("pid", "{}") != first {
		t.Error("it is two processes")
	}
}

// In a program whose tools say that they ask, calls take turns before the first question.
func TestAProgramThatSaysThatItAsks(t *testing.T) {
	t.Parallel()
	c := server("s", "speaks")
	b := open(t, options(), c)
	await.That(t, "it is listed", func() bool { return status(t, b, "s").Tools > 0 })
	cs := clients(t, b, "ann", "bob")
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(func() {
			if got := c.asks(1); !strings.Contains(got, `"who":"`+c.name+`"`) {
				t.Errorf("%s gets %s", c.name, got)
			}
		})
	}
	wg.Wait()
}

// A queue is a program that asks, with a call of ann's that waits for her user.
func newQueue(t *testing.T, wait time.Duration) (ann, bob *client, first chan string, ledger string) {
	ledger = filepath.Join(t.TempDir(), "ledger")
	c := server("s", "speaks", ledger)
	c.Wait = wait
	b := open(t, options(), c)
	await.That(t, "it is listed", func() bool { return status(t, b, "s").Tools > 0 })
	cs := clients(t, b, "ann", "bob")
	ann, bob = cs[0], cs[1]
	ann.waits = make(chan struct{})
	first = make(chan string, 1)
	go func() { first <- ann.asks(1) }()
	await.That(t, "ann is asked", func() bool { return ann.asked.Load() == 1 })
	return ann, bob, first, ledger
}

// turnedAway is what a call was told that had no turn, "" if it was told nothing of that.
func turnedAway(err error) string {
	var e *sallyport.Error
	if errors.As(err, &e) && e.Code == sallyport.RateLimited && errors.Is(err, sallyport.ErrNotExecuted) && e.RetryAfter > 0 {
		return e.Message
	}
	return ""
}

// Calls of one caller that may be asked come one at a time. One that waits for its user
// keeps no other caller out, and the line behind it has a bound.
func TestCallsThatAskTakeTurns(t *testing.T) {
	t.Parallel()
	ann, bob, first, ledger := newQueue(t, time.Hour)
	behind, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			var err error
			for again := true; again; again = turnedAway(err) != "" { // who looks below has a place at times
				_, err = ann.b.Run(behind, ann.job("echo", `{"behind":1}`))
			}
			if !errors.Is(err, context.Canceled) || !errors.Is(err, sallyport.ErrNotExecuted) {
				t.Errorf("a call behind one that waits: %v", err)
			}
		})
	}
	patience := 10 * time.Millisecond
	await.That(t, "the line is full", func() bool {
		patience = min(2*patience, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), patience) // while there is room it waits, too
		defer cancel()
		_, err := ann.b.Run(ctx, ann.job("echo", `{"behind":1}`))
		return strings.Contains(turnedAway(err), "16 more of your calls wait already")
	})
	for i := range 3 {
		if got := bob.asks(i); !strings.Contains(got, `"who":"bob"`) {
			t.Errorf("bob, meanwhile: %s", got)
		}
	}
	leave()
	wg.Wait()
	if l, _ := os.ReadFile(ledger); strings.Contains(string(l), "behind") {
		t.Error("a call that had no turn was made")
	}
	close(ann.waits)
	if got := <-first; !strings.Contains(got, `"who":"ann"`) {
		t.Errorf("ann, at last: %s", got)
	}
	if got := ann.run("echo", `{"after":1}`); got != `{"after":1}` {
		t.Errorf("afterwards: %s", got)
	}
}

// Nobody waits for a turn without end.
func TestAWaitForATurnEnds(t *testing.T) {
	t.Parallel()
	ann, _, first, _ := newQueue(t, 50*time.Millisecond)
	_, err := ann.b.Run(t.Context(), ann.job("echo", `{}`))
	if got := turnedAway(err); !strings.Contains(got, "has not ended for 50ms") {
		t.Errorf("%v", err)
	}
	close(ann.waits)
	<-first
}

// asksAside is a server of the official SDK that asks without saying for which call.
func asksAside() *mcp.Server {
	srv := mcp.NewServer(&mcp.Implementation{Name: "aside", Version: "1"}, nil)
	srv.AddTool(&mcp.Tool{Name: "await", InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := r.Session.Elicit(context.Background(), &mcp.ElicitParams{Message: "Who?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"who": map[string]any{"type": "string"}}}})
		text := ""
		if err == nil {
			text = fmt.Sprintf(`"who":"%v"`, res.Content["who"])
		} else {
			text = err.Error()
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	})
	return srv
}

// Over HTTP each caller has a session of its own from the start; calls in it that ask on
// the standing stream take turns, once one has.
func TestQuestionsBesideTheCallsOwnStream(t *testing.T) {
	t.Parallel()
	srv := asksAside()
	streamable := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil))
	t.Cleanup(func() { streamable.CloseClientConnections(); streamable.Close() })
	for name, url := range map[string]string{
		"streamable HTTP": streamable.URL,
		"HTTP+SSE":        startOlder(t, mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return srv }, nil)),
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, options(), upstream.Config{Name: "s", URL: url})
			for _, c := range clients(t, b, "ann", "bob") { // each for the first time
				if got := c.asks(1); got != `"who":"`+c.name+`"` {
					t.Errorf("%s gets %s", c.name, got)
				}
			}
			var wg sync.WaitGroup
			for _, c := range clients(t, b, "ann", "bob", "ann", "bob", "ann") {
				wg.Go(func() {
					if got := c.asks(2); got != `"who":"`+c.name+`"` {
						t.Errorf("at once: %s gets %s", c.name, got)
					}
				})
			}
			wg.Wait()
		})
	}
}
