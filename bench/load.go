package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport/wire"
)

// A target is one way to the upstream.
type target struct {
	way   string
	url   string
	token string
	tool  string
	pid   int // of the process in the middle, 0 if there is none
}

// shot is one tools/call of the 2026-07-28 era, as raw HTTP.
func (t target) shot(ctx context.Context, c *http.Client, args json.RawMessage) error {
	params := fmt.Appendf(nil, `{"name":%q,"arguments":%s,"_meta":{%q:%q,%q:{},%q:{"name":"bench","version":"1"}}}`,
		t.tool, args, wire.MetaProtocolVersion, wire.Version2026_07_28, wire.MetaClientCapabilities, wire.MetaClientInfo)
	body := wire.AppendRequest(nil, json.RawMessage("1"), "tools/call", params)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	h := req.Header
	h.Set("Content-Type", wire.TypeJSON)
	h.Set("Accept", wire.TypeJSON+", "+wire.TypeSSE)
	h.Set(wire.HeaderProtocolVersion, wire.Version2026_07_28)
	h.Set(wire.HeaderMethod, "tools/call")
	h.Set(wire.HeaderName, t.tool)
	if t.token != "" {
		h.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !bytes.Contains(b, []byte("one kilobyte of text")) {
		return fmt.Errorf("%s: %s: %.300s", t.way, resp.Status, b)
	}
	return nil
}

// round shoots with c clients for a while.
func (t target) round(ctx context.Context, c int, length time.Duration) (lat []time.Duration, failures int, cpu time.Duration, err error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: c}}
	defer client.CloseIdleConnections()
	if err := t.shot(ctx, client, echo()); err != nil {
		return nil, 0, 0, err
	}
	before, err := cpuOf(t.pid)
	if err != nil {
		return nil, 0, 0, err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	until := time.Now().Add(length)
	for range c {
		wg.Go(func() {
			var mine []time.Duration
			bad := 0
			args := echo()
			for time.Now().Before(until) && ctx.Err() == nil {
				at := time.Now()
				if t.shot(ctx, client, args) != nil {
					bad++
					continue
				}
				mine = append(mine, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			lat, failures = append(lat, mine...), failures+bad
		})
	}
	wg.Wait()
	after, err := cpuOf(t.pid)
	return lat, failures, after - before, err
}

// calls interleaves rounds of every target.
func (s *scene) calls(ctx context.Context, o Options, c int) ([]Calls, error) {
	lat := make([][]time.Duration, len(s.targets))
	out := make([]Calls, len(s.targets))
	var cpu = make([]time.Duration, len(s.targets))
	for range o.Rounds {
		for i, t := range s.targets {
			l, bad, used, err := t.round(ctx, c, o.Length)
			if err != nil {
				return nil, err
			}
			lat[i], cpu[i], out[i].Errors = append(lat[i], l...), cpu[i]+used, out[i].Errors+bad
		}
	}
	for i, t := range s.targets {
		slices.Sort(lat[i])
		out[i].Way, out[i].Client, out[i].C, out[i].N = t.way, "raw HTTP", c, len(lat[i])
		if len(lat[i]) == 0 {
			return nil, errors.New(t.way + ": no call succeeded")
		}
		out[i].P50, out[i].P99 = micros(percentile(lat[i], 0.5)), micros(percentile(lat[i], 0.99))
		out[i].RPS = float64(len(lat[i])) / (o.Length * time.Duration(o.Rounds)).Seconds()
		out[i].CPU = micros(cpu[i]) / float64(len(lat[i]))
	}
	return out, nil
}

// cpuOf is the CPU time that a process has used, in clock ticks of 10 ms.
func cpuOf(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, b)
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}
