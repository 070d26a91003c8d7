package conformance

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/wire"
)

// A counter is a server that knows how many calls it has at once.
type counter struct{ open, most, all atomic.Int64 }

func (s *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, _ := wire.ParseMessage(body)
	result := `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	switch m.Method {
	case "tools/list":
		result = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"wait","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		n := s.open.Add(1)
		for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
		}
		time.Sleep(100 * time.Millisecond)
		s.open.Add(-1)
		s.all.Add(1)
		result = `{"resultType":"complete","content":[]}`
	}
	w.Header().Set("Content-Type", wire.TypeJSON)
	_, _ = w.Write(wire.AppendResult(nil, m.ID, []byte(result)))
}

// FO-42: two gateways over one database hold one bound together, as configured:
// calls in flight at the server, and calls a second.
func TestFO42TwoGateways(t *testing.T) {
	t.Parallel()
	srv := &counter{}
	h := httptest.NewServer(srv)
	t.Cleanup(h.Close)
	first := stage.NewOn(t, postgrestest.New(t).Database(t))
	var c []raw
	for _, g := range []*stage.Gateway{first, first.Join(t)} {
		g.Write("sallyport.yaml", g.Config(fmt.Sprintf("servers: {slow: {url: %q}}\nlimits: {rate: 1000, burst: 1000, concurrency: 1000, tenant: {rate: 10, burst: 10, concurrency: 5}}\n", h.URL)))
		g.Write("tools/wait.yaml", "server: slow\ntool: wait\nread_only: true\n")
		g.Start("slow")
		c = append(c, newRaw(t, g))
	}
	begun := time.Now()
	var refused, odd atomic.Int64
	enough := func() bool { return srv.most.Load() > 1 && srv.all.Load() > 12 && refused.Load() > 0 } // of each bound is something seen
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := 0; time.Since(begun) < 2*time.Second || !enough() && time.Since(begun) < stage.Patience; n++ {
				a, err := c[i%2].call(fmt.Sprint(i*1000+n), "slow__wait", `{}`, "")
				switch {
				case err != nil:
					odd.Add(1)
					t.Log(err)
				case a.Result != nil:
				case strings.Contains(a.Error.Message, "cannot be counted just now"): // the database is slow, as all is
				case strings.Contains(a.Error.Message, "your tenant"):
					refused.Add(1)
					time.Sleep(20 * time.Millisecond)
				default:
					odd.Add(1)
					t.Log(a)
				}
			}
		})
	}
	all.Wait()
	most := 10 + int64(time.Since(begun).Seconds()*10) + 1
	if srv.most.Load() > 5 || srv.all.Load() > most || odd.Load() != 0 || !enough() {
		t.Errorf("%d at once (at most 5), %d in all (at most %d), %d refused, %d odd", srv.most.Load(), srv.all.Load(), most, refused.Load(), odd.Load())
	}
}
