package upstream_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport/wire"
)

// The test binary is also the servers that it tests against: run as
// "hostile MODE [ARG]" it speaks MCP over its standard input and output, each
// mode with its own way to misbehave.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "hostile" {
		h := hostile{mode: os.Args[2], arg: strings.Join(os.Args[3:], " ")}
		h.serve()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type hostile struct {
	mode, arg string
	pages     int
	awaits    map[string]json.RawMessage // by the id of a request of its own, the call that waits for the response
}

func (h *hostile) serve() {
	switch h.mode {
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "probekiller-cold":
		os.Exit(7)
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		m, err := wire.ParseMessage(bytes.TrimSpace(line))
		if err != nil {
			fmt.Fprintln(os.Stderr, "bad message:", err)
			continue
		}
		if m.IsNotification() {
			h.ledger(m.Method + " " + string(m.Params))
			continue
		}
		if m.IsResponse() {
			h.ledger("response " + string(line))
			if call, ok := h.awaits[string(m.ID)]; ok {
				result(call, text(strings.TrimSpace(string(line))))
			}
			continue
		}
		h.request(m)
	}
	if h.mode == "stubborn" {
		time.Sleep(time.Hour)
	}
}

// ledger appends a line to the file that the test reads.
func (h *hostile) ledger(s string) {
	if !strings.HasPrefix(h.arg, "/") {
		return
	}
	f, err := os.OpenFile(h.arg, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, strings.TrimSpace(s))
	_ = f.Close()
}

func write(s string) { _, _ = os.Stdout.WriteString(s) }

func result(id json.RawMessage, result string) {
	write(string(wire.AppendResult(nil, id, json.RawMessage(result))) + "\n")
}

func (h *hostile) request(m wire.Message) {
	switch m.Method {
	case "server/discover":
		h.discover(m)
	case "initialize":
		version := wire.Version2025_11_25
		if h.mode == "ancient" {
			version = wire.Version2024_11_05
		}
		result(m.ID, `{"protocolVersion":"`+version+`","capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"1"},"instructions":"Be careful."}`)
		if h.mode == "mortal" {
			time.Sleep(50 * time.Millisecond) // dies between initialize and the first call
			os.Exit(3)
		}
	case "tools/list":
		h.list(m)
	case "tools/call":
		h.call(m)
	default:
		write(string(wire.AppendError(nil, m.ID, &wire.Error{Code: wire.CodeMethodNotFound, Message: "no such method"})) + "\n")
	}
}

func (h *hostile) discover(m wire.Message) {
	switch h.mode {
	case "modern":
		result(m.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"hostile","version":"2"}}}`)
	case "deaf":
		// never answers what it does not know
	case "probekiller":
		os.Exit(9)
	default:
		write(string(wire.AppendError(nil, m.ID, &wire.Error{Code: -32000, Message: "not initialized"})) + "\n")
	}
}

const echoTool = `{"name":"echo","inputSchema":{"type":"object"}}`

func (h *hostile) list(m wire.Message) {
	cursor, _ := wire.String(wire.Member(m.Params, "cursor"))
	h.pages++
	tool := fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object"}}`, h.pages)
	switch h.mode {
	case "same-cursor":
		result(m.ID, `{"tools":[`+echoTool+`],"nextCursor":"again"}`)
	case "cycle":
		next := map[string]string{"": "A", "A": "B", "B": "A"}[cursor]
		result(m.ID, `{"tools":[`+tool+`],"nextCursor":"`+next+`"}`)
	case "endless-pages":
		result(m.ID, fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, h.pages))
	case "empty-cursor":
		result(m.ID, `{"tools":[`+tool+`],"nextCursor":""}`)
	case "slow-pages":
		if h.pages > 1 {
			return
		}
		result(m.ID, `{"tools":[`+tool+`],"nextCursor":"more"}`)
	case "page-fails", "page-fails-later": // the second of two, always or but for the first time
		if later := h.mode == "page-fails-later" && h.pages <= 2; cursor != "" && !later {
			write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32603,"message":"broken page"}}` + "\n")
		} else if cursor != "" {
			result(m.ID, `{"tools":[`+tool+`]}`)
		} else {
			result(m.ID, `{"tools":[`+echoTool+`],"nextCursor":"2"}`)
		}
	case "twins":
		result(m.ID, `{"tools":[`+echoTool+`,{"name":"echo","description":"another","inputSchema":{"type":"object"}},`+echoTool+`]}`)
	case "speaks": // of asking
		result(m.ID, `{"tools":[`+echoTool+`,{"name":"await","description":"asks by an elicitation request","inputSchema":{"type":"object"}}]}`)
	case "list-hangs":
	case "list-fails":
		result(m.ID, `{"tools":null}`)
	case "restless":
		write(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n")
		result(m.ID, `{"tools":[`+tool+`]}`)
	default:
		result(m.ID, `{"tools":[`+echoTool+`]}`)
	}
}

func text(s string) string {
	return `{"content":[{"type":"text","text":` + string(wire.Quote(s)) + `}]}`
}

func (h *hostile) call(m wire.Message) {
	name, _ := wire.String(wire.Member(m.Params, "name"))
	args := wire.Member(m.Params, "arguments")
	h.ledger("call " + string(m.Params))
	switch h.mode {
	case "exit-after":
		result(m.ID, text(string(args)))
		os.Exit(0)
	case "half":
		full := string(wire.AppendResult(nil, m.ID, json.RawMessage(text("x"))))
		fmt.Fprintln(os.Stderr, "about to fail\x1b[31m")
		write(full[:len(full)/2])
		os.Exit(1)
	case "raw":
		write(strings.ReplaceAll(h.arg, "ID", string(m.ID)) + "\n")
		return
	case "suicide":
		fmt.Fprintln(os.Stderr, "goodbye")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	switch name {
	case "hang":
		write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n", wire.Path(m.Params, "_meta", "progressToken")))
	case "hold": // answers, beside other calls, once a file is there
		file, _ := wire.String(wire.Member(args, "until"))
		go func() {
			for {
				if _, err := os.Stat(file); err == nil {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			result(m.ID, text("held"))
		}()
	case "pid":
		result(m.ID, text(strconv.Itoa(os.Getpid())))
	case "fail":
		result(m.ID, `{"content":[{"type":"text","text":"as asked"}],"isError":true}`)
	case "env":
		b, _ := json.Marshal(os.Environ())
		result(m.ID, `{"content":[],"structuredContent":{"env":`+string(b)+`}}`)
	case "params":
		result(m.ID, text(string(m.Params)))
	case "big":
		size, _ := strconv.Atoi(string(wire.Member(args, "size")))
		h.big(m, size)
	case "unknown":
		write(string(wire.AppendError(nil, m.ID, &wire.Error{Code: wire.CodeInvalidParams, Message: "unknown tool"})) + "\n")
	case "ask":
		write(`{"jsonrpc":"2.0","id":"p","method":"ping"}` + "\n" + `{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}` + "\n")
		result(m.ID, text("asked"))
	case "await": // asks, and answers with the response
		if h.awaits == nil {
			h.awaits = map[string]json.RawMessage{}
		}
		id := string(wire.Member(args, "id"))
		h.awaits[id] = m.ID
		write(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object"}}}` + "\n")
	case "take-back": // asks, and does not want to know
		write(`{"jsonrpc":"2.0","id":"t","method":"roots/list"}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"t"}}` + "\n")
		h.awaits = map[string]json.RawMessage{`"after"`: m.ID}
		write(`{"jsonrpc":"2.0","id":"after","method":"ping"}` + "\n")
	case "late": // asks when the call is over
		result(m.ID, text("done"))
		time.Sleep(50 * time.Millisecond)
		write(`{"jsonrpc":"2.0","id":"late","method":"roots/list"}` + "\n")
	case "child":
		h.child(m)
	case "noise":
		write("this is not JSON\n\n{\"jsonrpc\":\"2.0\",\"id\":999999,\"result\":{}}\n" + `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"other caller's"}}` + "\n")
		result(m.ID, text("noise"))
	default:
		result(m.ID, text(string(args)))
	}
}

// big answers with a line of exactly size bytes; -1 is a line without end.
func (h *hostile) big(m wire.Message, size int) {
	head := `{"result":{"content":[{"type":"text","text":"`
	tail := `"}],"x":{"id":12345}},"jsonrpc":"2.0","id":` + string(m.ID) + `}`
	if size < 0 {
		write(head)
		chunk := strings.Repeat("x", 1<<20)
		for {
			if _, err := os.Stdout.WriteString(chunk); err != nil {
				os.Exit(0)
			}
		}
	}
	write(head + strings.Repeat("x", size-len(head)-len(tail)) + tail + "\n")
}

// child leaves a process behind that holds our output open.
func (h *hostile) child(m wire.Message) {
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "600"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		panic(err)
	}
	result(m.ID, text(strconv.Itoa(p.Pid)))
}
