package main

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

type listenKey struct{}

// listen opens a stream of changes and leaves it open.
func listen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: listen TOKEN")
	}
	req, err := http.NewRequest("POST", "http://127.0.0.1:"+ts.Getenv("PORT")+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
	ts.Check(err)
	req.Header = http.Header{
		"Authorization": {"Bearer " + args[0]}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"},
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	*ts.Value(listenKey{}).(*io.ReadCloser) = resp.Body
	ts.Defer(func() { resp.Body.Close() })
}

// heard prints all that the stream told until it ended.
func heard(ts *testscript.TestScript, _ bool, _ []string) {
	body := *ts.Value(listenKey{}).(*io.ReadCloser)
	give := time.AfterFunc(time.Minute, func() { body.Close() })
	defer give.Stop()
	_, err := io.Copy(ts.Stdout(), body)
	ts.Check(err)
}
