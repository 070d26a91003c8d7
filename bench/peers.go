package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"sallyport.dev/sallyport/wire"
)

// RunEcho serves a small MCP server of the 2026-07-28 era on a free port,
// prints its address as one line, and ends with ctx. Its tools echo and write
// both return their message.
func RunEcho(ctx context.Context, out io.Writer) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
		if err != nil {
			return
		}
		m, err := wire.ParseMessage(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", wire.TypeJSON)
		w.Write(answer(m))
	})
	return listen(ctx, out, mux)
}

const tools = `{"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[` +
	`{"name":"echo","description":"Returns its message.","inputSchema":` + schema + `},` +
	`{"name":"write","description":"Returns its message, too.","inputSchema":` + schema + `}]}`

const schema = `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`

func answer(m wire.Message) []byte {
	if m.Method == "initialize" || m.ID == nil {
		return wire.AppendError(nil, m.ID, &wire.Error{Code: wire.CodeMethodNotFound, Message: "only " + wire.Version2026_07_28 + " is spoken here"})
	}
	var result string
	switch m.Method {
	case "server/discover":
		result = fmt.Sprintf(`{"resultType":"complete","supportedVersions":[%q],"capabilities":{"tools":{}},"ttlMs":60000,"cacheScope":"public","_meta":{%q:{"name":"echo","version":"1"}}}`,
			wire.Version2026_07_28, wire.MetaServerInfo)
	case "tools/list":
		result = tools
	case "tools/call":
		text := wire.Path(m.Params, "arguments", "message")
		if text == nil {
			text = json.RawMessage(`""`)
		}
		result = `{"resultType":"complete","content":[{"type":"text","text":` + string(text) + `}]}`
	default:
		return wire.AppendError(nil, m.ID, &wire.Error{Code: wire.CodeMethodNotFound, Message: "unknown method"})
	}
	return wire.AppendResult(nil, m.ID, json.RawMessage(result))
}

// RunProxy serves the standard library's reverse proxy in front of to: what
// being in the middle costs when nothing is governed.
func RunProxy(ctx context.Context, out io.Writer, to string) error {
	u, err := url.Parse(to)
	if err != nil {
		return err
	}
	p := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u) },
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
	return listen(ctx, out, p)
}

func listen(ctx context.Context, out io.Writer, h http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, l.Addr())
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go func() { <-ctx.Done(); srv.Close() }()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
