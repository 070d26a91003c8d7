// Package bridge lets a local MCP client that speaks stdio use the gateway:
// newline-delimited JSON-RPC in front, authenticated HTTP behind.
package bridge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"sallyport.dev/sallyport/wire"
)

// MaxLine bounds one message from the client.
const MaxLine = 8 << 20

// maxInFlight bounds the requests under way at once; further ones wait.
const maxInFlight = 64

// A Bridge carries messages between one client and the gateway.
type Bridge struct {
	URL    string                                // of the gateway's MCP endpoint
	Token  func(context.Context) (string, error) // fresh enough for one request
	Client *http.Client

	mu      sync.Mutex // guards what follows, and writes to out
	out     io.Writer
	session string
	version string
	cancels map[string]context.CancelFunc // by request id
}

// Run reads messages from in until it ends, and waits for their answers.
func (b *Bridge) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	b.out, b.cancels = out, map[string]context.CancelFunc{}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	slots := make(chan struct{}, maxInFlight)
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), MaxLine)
	for lines.Scan() {
		line := bytes.Clone(bytes.TrimSpace(lines.Bytes()))
		if len(line) == 0 {
			continue
		}
		m, err := wire.ParseMessage(line)
		if err != nil {
			b.send(wire.AppendError(nil, []byte("null"), &wire.Error{Code: wire.CodeParse, Message: err.Error()}))
			continue
		}
		if b.cancelled(m) {
			continue
		}
		if m.Method == "initialize" || !m.IsRequest() {
			b.forward(ctx, m, line) // what follows depends on it
			continue
		}
		slots <- struct{}{}
		running.Add(1)
		go func() {
			defer running.Done()
			defer func() { <-slots }()
			b.forward(ctx, m, line)
		}()
	}
	running.Wait()
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading from the client: %w", err)
	}
	return nil
}

// cancelled ends the request that a modern client's notification names. For a
// legacy session the notification itself goes on to the gateway.
func (b *Bridge) cancelled(m wire.Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.Method != "notifications/cancelled" || b.session != "" {
		return false
	}
	if stop, ok := b.cancels[wire.IDKey(wire.Member(m.Params, "requestId"))]; ok {
		stop()
	}
	return true
}

// forward posts one message and hands back what comes.
func (b *Bridge) forward(ctx context.Context, m wire.Message, raw []byte) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if m.IsRequest() {
		key := wire.IDKey(m.ID)
		b.mu.Lock()
		b.cancels[key] = stop
		b.mu.Unlock()
		defer func() { b.mu.Lock(); delete(b.cancels, key); b.mu.Unlock() }()
	}
	answered, err := b.post(ctx, m, raw)
	if ctx.Err() != nil || !m.IsRequest() || err == nil && answered {
		return
	}
	if err == nil {
		err = errors.New("the gateway ended the reply without an answer")
	}
	b.send(wire.AppendError(nil, m.ID, &wire.Error{Code: wire.CodeInternal, Message: "sallyport stdio: " + err.Error()}))
}

func (b *Bridge) post(ctx context.Context, m wire.Message, raw []byte) (answered bool, err error) {
	token, err := b.Token(ctx)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL, bytes.NewReader(raw))
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", wire.TypeJSON)
	req.Header.Set("Accept", wire.TypeJSON+", "+wire.TypeSSE)
	b.headers(req.Header, m)
	resp, err := b.Client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == wire.TypeSSE {
		return b.stream(m, resp.Body)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4*MaxLine))
	if err != nil || resp.StatusCode == http.StatusAccepted {
		return false, err
	}
	if _, err := wire.ParseMessage(body); err != nil {
		return false, fmt.Errorf("the gateway answered %s: %.200s", resp.Status, body)
	}
	b.learn(m, resp.Header.Get(wire.HeaderSessionID), body)
	b.send(bytes.TrimSpace(body))
	return true, nil
}

// headers says in HTTP what the message says in JSON, as each era wants it.
func (b *Bridge) headers(h http.Header, m wire.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v, ok := wire.String(wire.Path(m.Params, "_meta", wire.MetaProtocolVersion)); ok {
		h.Set(wire.HeaderProtocolVersion, v)
		h.Set(wire.HeaderMethod, wire.EncodeHeader(m.Method))
		for _, member := range []string{"name", "uri", "taskId"} {
			if s, ok := wire.String(wire.Member(m.Params, member)); ok {
				h.Set(wire.HeaderName, wire.EncodeHeader(s))
				break
			}
		}
		return
	}
	if b.session != "" && m.Method != "initialize" {
		h.Set(wire.HeaderSessionID, b.session)
		h.Set(wire.HeaderProtocolVersion, b.version)
	}
}

// learn keeps what initialize agreed on.
func (b *Bridge) learn(m wire.Message, session string, answer []byte) {
	if m.Method != "initialize" || session == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session = session
	b.version, _ = wire.String(wire.Path(answer, "result", "protocolVersion"))
}

func (b *Bridge) stream(m wire.Message, body io.Reader) (answered bool, err error) {
	events := wire.NewEventReader(body, 4*MaxLine)
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return answered, nil
		}
		if err != nil {
			return answered, err
		}
		if len(e.Data) == 0 {
			continue
		}
		answer, err := wire.ParseMessage(e.Data)
		if err != nil {
			return answered, err
		}
		answered = answered || answer.IsResponse() && wire.IDKey(answer.ID) == wire.IDKey(m.ID)
		b.send(e.Data)
	}
}

// send writes one message as a line. JSON has no raw newlines but white
// space between tokens, which is all that can be lost here.
func (b *Bridge) send(message []byte) {
	line := bytes.ReplaceAll(message, []byte("\n"), []byte(" "))
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.out.Write(append(line, '\n')) // a client that has gone closes stdin too
}
