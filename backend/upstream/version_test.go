package upstream_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/wire"
)

// A server that refuses our version and names it as one that it supports is asked
// again; one that names others is greeted as one of an earlier era.
func TestRefusedVersionIsOfferedAgain(t *testing.T) {
	t.Parallel()
	for offered, want := range map[string]struct {
		era    string
		probes int64
	}{
		`["2026-07-28"]`: {"modern", 2}, `["2027-01-01","2026-07-28"]`: {"modern", 2},
		`["2027-01-01"]`: {"legacy", 1}, `[]`: {"legacy", 1}, `"2026-07-28"`: {"legacy", 1},
	} {
		var probes atomic.Int64
		s := &web{modern: want.era == "modern"}
		s.special = func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
			if m.Method != "server/discover" || probes.Add(1) > 1 {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			reply := wire.Message{ID: m.ID, Error: &wire.Error{Code: wire.CodeUnsupportedVersion, Message: "no", Data: []byte(`{"supported":` + offered + `,"requested":"2026-07-28"}`)}}
			_, _ = w.Write(reply.Append(nil))
			return true
		}
		b := upstream.New([]upstream.Config{{Name: "s", URL: s.start(t)}}, options())
		if _, err := b.Tools(t.Context(), "s"); err != nil {
			t.Fatalf("%s: %v", offered, err)
		}
		if got := b.Status()[0]; got.Era != want.era || probes.Load() != want.probes {
			t.Errorf("%s: %s after %d probes, want %s after %d", offered, got.Era, probes.Load(), want.era, want.probes)
		}
		_ = b.Close()
	}
}

// A server that refuses our version each time, whatever it says it supports, is
// asked twice and no more.
func TestRefusedVersionIsNotOfferedForEver(t *testing.T) {
	t.Parallel()
	var probes atomic.Int64
	s := &web{}
	s.special = func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
		if m.Method != "server/discover" {
			return false
		}
		probes.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		reply := wire.Message{ID: m.ID, Error: &wire.Error{Code: wire.CodeUnsupportedVersion, Message: "no", Data: []byte(`{"supported":["2026-07-28"]}`)}}
		_, _ = w.Write(reply.Append(nil))
		return true
	}
	b := upstream.New([]upstream.Config{{Name: "s", URL: s.start(t)}}, options())
	defer func() { _ = b.Close() }()
	if _, err := b.Tools(t.Context(), "s"); err != nil || b.Status()[0].Era != "legacy" || probes.Load() != 2 {
		t.Errorf("%v, %+v after %d probes", err, b.Status()[0], probes.Load())
	}
}

// A program that starts so slowly that it says nothing to the first question, and knows no
// initialize, is asked once more.
func TestModernProgramThatStartsSlowly(t *testing.T) {
	t.Parallel()
	script := `asked=
while read -r line; do
id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
case $line in
*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"Method not found"}}' ;;
*'"server/discover"'*) [ -z "$asked" ] || echo '{"jsonrpc":"2.0","id":'$id',"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}'; asked=1 ;;
*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[]}}' ;;
esac
done`
	o := options()
	o.Probe = 300 * time.Millisecond
	b := open(t, o, upstream.Config{Name: "s", Argv: []string{"/bin/sh", "-c", script}, Isolation: "none"})
	if _, err := b.Tools(t.Context(), "s"); err != nil || b.Status()[0].Era != "modern" {
		t.Errorf("%v, %+v", err, b.Status()[0])
	}
}
