package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/entry"
	"sallyport.dev/sallyport/test/await"
)

// stateful is a server of the official SDK that keeps in each session what it was
// told there, and has a call that waits until it is cancelled or let go.
type stateful struct {
	mu        sync.Mutex
	kept      map[string]string // by session
	waiting   chan string
	cancelled chan string
	release   chan struct{}
	sessions  map[string]bool
}

func (s *stateful) tool(name string, run func(ctx context.Context, r *mcp.CallToolRequest) string) func(*mcp.Server) {
	return func(srv *mcp.Server) {
		srv.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			s.mu.Lock()
			s.sessions[r.Session.ID()] = true
			s.mu.Unlock()
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: run(ctx, r)}}}, nil
		})
	}
}

func newStateful(t *testing.T) (*stateful, string) {
	s := &stateful{kept: map[string]string{}, waiting: make(chan string, 10), cancelled: make(chan string, 10), release: make(chan struct{}), sessions: map[string]bool{}}
	srv := mcp.NewServer(&mcp.Implementation{Name: "stateful", Version: "1"}, nil)
	for _, add := range []func(*mcp.Server){
		s.tool("set", func(_ context.Context, r *mcp.CallToolRequest) string {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.kept[r.Session.ID()] = string(r.Params.Arguments)
			return "kept"
		}),
		s.tool("get", func(_ context.Context, r *mcp.CallToolRequest) string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return "it is " + s.kept[r.Session.ID()]
		}),
		s.tool("wait", func(ctx context.Context, r *mcp.CallToolRequest) string {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Message: string(r.Params.Arguments)})
			s.waiting <- string(r.Params.Arguments)
			select {
			case <-ctx.Done():
				s.cancelled <- string(r.Params.Arguments)
			case <-s.release:
			}
			return "waited " + string(r.Params.Arguments)
		}),
	} {
		add(srv)
	}
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return s, h.URL
}

func jobOf(who sallyport.Principal, name, args string) sallyport.Job {
	j := backendtest.Job(tool("s", name), args)
	j.Who = who
	return j
}

// FO-16: what one principal did in a session of a server, another neither sees nor
// ends, and each hears of its own call only.
func TestFO16_PrincipalsShareNoSession(t *testing.T) {
	t.Parallel()
	s, url := newStateful(t)
	b := open(t, options(), upstream.Config{Name: "s", URL: url})
	ann, bob := sallyport.Principal{Tenant: "t1", ID: "ann"}, sallyport.Principal{Tenant: "t1", ID: "bob"}
	others := []sallyport.Principal{bob, {Tenant: "t2", ID: "ann"}, {Tenant: "t1", ID: "ann", OnBehalfOf: "cy"}}
	run := func(who sallyport.Principal, name, args string) string {
		t.Helper()
		out, err := b.Run(t.Context(), jobOf(who, name, args))
		if err != nil {
			t.Fatalf("%+v %s: %v", who, name, err)
		}
		text, err := backendtest.Text(out)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	run(ann, "set", `{"v":"of ann"}`)
	if got := run(ann, "get", `{}`); got != `it is {"v":"of ann"}` {
		t.Errorf("the control: ann gets %s", got)
	}
	for _, who := range others {
		if got := run(who, "get", `{}`); got != "it is " {
			t.Errorf("%+v gets %s", who, got)
		}
	}
	if n := len(s.sessions); n != 4 {
		t.Errorf("%d sessions for four principals", n)
	}
	// Both wait; ann cancels hers.
	ctx, cancel := context.WithCancel(t.Context())
	heard := map[string]string{}
	var mu sync.Mutex
	wait := func(ctx context.Context, who sallyport.Principal, args string) (sallyport.Output, error) {
		j := jobOf(who, "wait", args)
		j.Notify = func(n sallyport.Notice) {
			mu.Lock()
			defer mu.Unlock()
			heard[who.ID] += string(n.Params)
		}
		return b.Run(ctx, j)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := wait(ctx, ann, `{"i":1}`); err == nil {
			t.Error("a cancelled call has a result")
		}
	})
	wg.Go(func() {
		out, err := wait(t.Context(), bob, `{"i":2}`)
		if err != nil || !strings.Contains(string(out.Content), "waited") {
			t.Errorf("bob's call: %s, %v", out.Content, err)
		}
	})
	for range 2 {
		select {
		case <-s.waiting:
		case <-time.After(await.Patience):
			t.Fatal("they do not wait")
		}
	}
	cancel()
	select {
	case got := <-s.cancelled:
		if got != `{"i":1}` {
			t.Errorf("cancelled %s", got)
		}
	case <-time.After(await.Patience):
		t.Fatal("the server is not told")
	}
	close(s.release)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(heard["ann"], `{\"i\":2}`) || strings.Contains(heard["bob"], `{\"i\":1}`) || !strings.Contains(heard["bob"], `{\"i\":2}`) {
		t.Errorf("heard %v", heard)
	}
	if len(s.cancelled) > 0 {
		t.Errorf("also cancelled: %s", <-s.cancelled)
	}
}

// A session of a principal that the server forgot is opened again, once.
func TestAnOwnSessionThatIsLost(t *testing.T) {
	t.Parallel()
	srv := &web{}
	b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
	ann := sallyport.Principal{Tenant: "t", ID: "ann"}
	// The fake knows one session at a time, so each of the two loses the other's.
	for i := range 3 {
		out, err := b.Run(t.Context(), jobOf(ann, "echo", fmt.Sprintf(`{"i":%d}`, i)))
		if err != nil || !strings.Contains(string(out.Content), fmt.Sprint(i)) {
			t.Fatalf("call %d: %s, %v", i, out.Content, err)
		}
		srv.session.Add(1)
	}
	if n := srv.executed.Load(); n != 3 {
		t.Errorf("executed %d times", n)
	}
}

// What a principal follows is followed by the session that listens, and taken back there.
func TestWhatIsFollowedStaysWithTheListener(t *testing.T) {
	t.Parallel()
	srv := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	srv.AddResource(&mcp.Resource{URI: "x:1", Name: "one"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{}, nil
	})
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	updates := make(chan string, 10)
	o := options()
	o.OnUpdate = func(_, address string) { updates <- address }
	b := open(t, o, upstream.Config{Name: "s", URL: h.URL})
	j := jobOf(sallyport.Principal{Tenant: "t", ID: "ann"}, "", "")
	j.Kind, j.Tool.Shelf, j.Tool.Origin.Name = sallyport.Subscribe, sallyport.Resources, "x:1"
	if _, err := b.Run(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	await.That(t, "an update is told", func() bool {
		_ = srv.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "x:1"})
		select {
		case <-updates:
			return true
		case <-time.After(20 * time.Millisecond):
			return false
		}
	})
	b.Unfollow("s", "x:1")
	b.Unfollow("s", "x:1") // does no harm
	b.Unfollow("s", "x:2")
}

// FO-16: what a program keeps in memory is its caller's: each principal has a process of
// its own, and keeps it. Where an operator says that they share one, it is marked.
func TestFO16_ProgramsAreEachCallersOwn(t *testing.T) {
	t.Parallel()
	shared := server("shared", "legacy")
	shared.Processes = entry.One
	b := open(t, options(), server("apart", "legacy"), shared)
	all := []sallyport.Principal{{Tenant: "t", ID: "ann"}, {Tenant: "t", ID: "bob"}, {Tenant: "u", ID: "ann"}, {Tenant: "t", ID: "ann", OnBehalfOf: "cy"}}
	for name, want := range map[string]int{"apart": len(all), "shared": 1} {
		pids := map[string]sallyport.Principal{}
		for range 2 {
			for _, who := range all {
				j := backendtest.Job(tool(name, "pid"), `{}`)
				j.Who = who
				out, err := b.Run(t.Context(), j)
				if err != nil {
					t.Fatal(err)
				}
				pid, err := backendtest.Text(out)
				if err != nil {
					t.Fatal(err)
				}
				pids[pid] = who
			}
		}
		if len(pids) != want {
			t.Errorf("%s: processes %v", name, pids)
		}
		if marked := strings.Contains(strings.Join(status(t, b, name).Warnings, " "), "shared:"); marked != (want == 1) {
			t.Errorf("%s: marked %t", name, marked)
		}
	}
}
