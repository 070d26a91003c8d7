package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
)

// A Message is one JSON-RPC message. Which members are set says what it is:
// see IsRequest, IsNotification, IsResponse.
type Message struct {
	ID     json.RawMessage // a string or integer, as it was written; nil if there is none
	Method string
	Params json.RawMessage // an object, or nil
	Result json.RawMessage
	Error  *Error

	Pruned error // why ParseAnswer left something out, nil if it did not
}

// An Error is a JSON-RPC error object. ParseMessage's errors are of this type too.
type Error struct {
	Code    int
	Message string
	Data    json.RawMessage // nil if there is none
}

func (e *Error) Error() string { return e.Message + " (" + strconv.Itoa(e.Code) + ")" }

// Offers reports whether e refuses a request's protocol version, and names this
// one among those that are supported. A nil error offers nothing.
func (e *Error) Offers(version string) bool {
	if e == nil || e.Code != CodeUnsupportedVersion {
		return false
	}
	for v := range Elements(Member(e.Data, "supported")) {
		if text, _ := String(v); text == version {
			return true
		}
	}
	return false
}

// IsRequest reports whether m asks for an answer.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsNotification reports whether m asks for no answer.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == nil }

// IsResponse reports whether m is an answer, a result or an error.
func (m *Message) IsResponse() bool { return m.Method == "" }

// ParseMessage reads exactly one message. The parts point into raw, which must
// not change afterwards.
//
// Errors are *Error, with the code to answer with. The message returned beside
// an error has the ID if one could be read.
func ParseMessage(raw []byte) (Message, error) {
	if err := Validate(raw); err != nil {
		return Message{}, &Error{Code: CodeParse, Message: "not valid JSON: " + err.Error()}
	}
	body := trim(raw)
	if body[0] == '[' {
		return Message{}, invalid("batches are not supported: send one message per request")
	}
	if body[0] != '{' {
		return Message{}, invalid("a message must be a JSON object")
	}
	return parseEnvelope(body)
}

// Each yields the messages of a body: those of a batch, which servers of 2025-03-26 may
// send, or the one that it is.
func Each(body []byte) iter.Seq[json.RawMessage] {
	if b := bytes.TrimLeft(body, " \t\r\n"); len(b) > 0 && b[0] == '[' && Validate(body) == nil {
		return Elements(trim(body))
	}
	return func(yield func(json.RawMessage) bool) { yield(body) }
}

func invalid(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidRequest, Message: "invalid request: " + fmt.Sprintf(format, args...)}
}

// members collects an envelope's raw members.
type members struct{ version, id, method, params, result, err json.RawMessage }

func (p *members) collect(body []byte) (wrong string) {
	for name, v := range Members(body) {
		switch string(name) {
		case "jsonrpc":
			p.version = v
		case "id":
			p.id = v
		case "method":
			p.method = v
		case "params":
			p.params = v
		case "result":
			p.result = v
		case "error":
			p.err = v
		default:
			// A reader that ignores case would take it for the other one.
			switch n := strings.ToLower(string(name)); n {
			case "jsonrpc", "id", "method", "params", "result", "error":
				wrong = fmt.Sprintf("member %q: names are case-sensitive, write %q", name, n)
			}
		}
	}
	return wrong
}

func parseEnvelope(body []byte) (m Message, err error) {
	var p members
	wrong := p.collect(body)
	if p.id != nil {
		switch {
		case IsNull(p.id) && p.err != nil: // an error without a readable request
		case validID(p.id):
			m.ID = p.id
		default:
			return m, invalid("id must be a string or an integer, not %.40s", p.id)
		}
	}
	if wrong != "" {
		return m, invalid("%s", wrong)
	}
	if v, _ := String(p.version); v != "2.0" {
		return m, invalid(`jsonrpc must be "2.0"`)
	}
	if p.method != nil {
		return m, m.fillRequest(p)
	}
	return m, m.fillResponse(p)
}

func (m *Message) fillRequest(p members) error {
	var ok bool
	if m.Method, ok = String(p.method); !ok || m.Method == "" {
		m.Method = ""
		return invalid("method must be a string that is not empty")
	}
	if p.result != nil || p.err != nil {
		return invalid("a message has either a method, a result or an error")
	}
	if p.params != nil && !IsNull(p.params) {
		if !IsObject(p.params) {
			return &Error{Code: CodeInvalidParams, Message: "params must be an object"}
		}
		m.Params = p.params
	}
	return nil
}

func (m *Message) fillResponse(p members) error {
	switch {
	case p.result != nil && p.err != nil:
		return invalid("a response has either a result or an error")
	case p.result != nil && m.ID == nil:
		return invalid("a result needs an id")
	case p.result != nil:
		m.Result = p.result
		return nil
	case p.err == nil:
		return invalid("a message needs a method, a result or an error")
	}
	code, err := strconv.Atoi(string(Member(p.err, "code")))
	if err != nil {
		return invalid("error.code must be an integer")
	}
	text, ok := String(Member(p.err, "message"))
	if !ok {
		return invalid("error.message must be a string")
	}
	m.Error = &Error{Code: code, Message: text, Data: Member(p.err, "data")}
	return nil
}

// validID reports whether raw is a string or an integer literal.
func validID(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	if raw[0] == '"' {
		return true
	}
	return (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') && !bytes.ContainsAny(raw, ".eE")
}

// IDKey returns a key under which equal ids meet: 1 and "1" differ, "a" and
// "\u0061" do not.
func IDKey(id json.RawMessage) string {
	if s, ok := String(id); ok {
		return `"` + s
	}
	return string(id)
}

// Append appends m as one JSON object; raw parts are spliced in unchanged.
func (m *Message) Append(dst []byte) []byte {
	switch {
	case m.Method != "":
		return appendCall(dst, m.ID, m.Method, m.Params)
	case m.Error != nil:
		return AppendError(dst, m.ID, m.Error)
	}
	return AppendResult(dst, m.ID, m.Result)
}

// AppendRequest appends a request; params may be nil.
func AppendRequest(dst []byte, id json.RawMessage, method string, params json.RawMessage) []byte {
	return appendCall(dst, id, method, params)
}

// AppendNotification appends a notification; params may be nil.
func AppendNotification(dst []byte, method string, params json.RawMessage) []byte {
	return appendCall(dst, nil, method, params)
}

func appendCall(dst []byte, id json.RawMessage, method string, params json.RawMessage) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if id != nil {
		dst = append(append(dst, `,"id":`...), id...)
	}
	dst = AppendString(append(dst, `,"method":`...), method)
	if params != nil {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// AppendResult appends a response with a result.
func AppendResult(dst []byte, id, result json.RawMessage) []byte {
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), id...)
	dst = append(append(dst, `,"result":`...), result...)
	return append(dst, '}')
}

// AppendError appends a response with an error; without an id if id is nil.
func AppendError(dst []byte, id json.RawMessage, e *Error) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if id != nil {
		dst = append(append(dst, `,"id":`...), id...)
	}
	dst = strconv.AppendInt(append(dst, `,"error":{"code":`...), int64(e.Code), 10)
	dst = AppendString(append(dst, `,"message":`...), e.Message)
	if e.Data != nil {
		dst = append(append(dst, `,"data":`...), e.Data...)
	}
	return append(dst, "}}"...)
}

// AppendLine appends m as one line, for stdio. Line breaks between tokens of
// raw parts become spaces; inside strings JSON has none.
func (m *Message) AppendLine(dst []byte) []byte {
	from := len(dst)
	dst = m.Append(dst)
	for i := from; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return append(dst, '\n')
}
