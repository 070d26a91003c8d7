package upstream_test

import (
	"fmt"
	"net/http"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/wire"
)

// Servers of 2025-03-26 may send several messages at once, as a body or in an event.
func TestAnswersInBatches(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"JSON": wire.TypeJSON, "SSE": wire.TypeSSE} {
		t.Run(name, func(t *testing.T) {
			srv := &web{}
			srv.special = func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
				if m.Method != "tools/call" {
					return false
				}
				out := fmt.Appendf(nil, ` [{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}},{"jsonrpc":"2.0","id":"other","result":{"content":[]}},7,{"jsonrpc":"2.0","id":%s,"result":%s}]`, m.ID, text("one of several"))
				if kind == wire.TypeSSE {
					out = wire.AppendEvent(nil, "", out)
				}
				w.Header().Set("Content-Type", kind)
				_, _ = w.Write(out)
				return true
			}
			b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
			told := 0
			job := backendtest.Job(tool("s", "x"), `{}`)
			job.Notify = func(sallyport.Notice) { told++ }
			out, err := b.Run(t.Context(), job)
			if err != nil || out.IsError || string(out.Content) != text("one of several") || told != 1 {
				t.Errorf("%s, %v, told %d times", out.Content, err, told)
			}
		})
	}
}

// The same of programs, on a line.
func TestAnswersInBatchesOfPrograms(t *testing.T) {
	t.Parallel()
	script := `while read -r line; do
id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
case $line in
*'"initialize"'*) echo '[{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}]' ;;
*'"tools/list"'*) echo '[{"jsonrpc":"2.0","method":"notifications/message","params":{}},{"jsonrpc":"2.0","id":'$id',"result":{"tools":[]}}]' ;;
*'"tools/call"'*) echo '[{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"one of several"}]}}]' ;;
*'"server/discover"'*) echo '[{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}]' ;;
esac
done`
	b := open(t, options(), upstream.Config{Name: "s", Argv: []string{"/bin/sh", "-c", script}, Isolation: "none"})
	if got := mustText(t, b, "s", "x", `{}`); got != "one of several" {
		t.Errorf("got %q", got)
	}
}
