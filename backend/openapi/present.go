package openapi

import (
	"encoding/base64"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

const maxError = 16 << 10 // bytes of the body of an error

// An answer of an API, without credentials.
type answer struct {
	method string
	status int
	kind   string   // Content-Type
	moved  string   // where a redirect leads, which was not followed
	notes  []string // headers by which a caller goes on: the next page, the new thing, when to come back
	body   []byte
	cut    bool // the body goes on
}

// MetaStatus is the _meta key under which a result carries the HTTP status.
const MetaStatus = "dev.sallyport/httpStatus"

// present makes a tool result of the answer. JSON is passed as it came, so that
// no number changes.
func (a answer) present(tool sallyport.Tool) sallyport.Output {
	failed := a.status >= 300
	m, params, err := mime.ParseMediaType(a.kind)
	if err != nil {
		m = ""
	}
	isJSON := (m == "application/json" || strings.HasSuffix(m, "+json") || m == "") && wire.Validate(a.body) == nil
	b := []byte(`{"content":[`)
	switch {
	case failed:
		b = textBlock(b, a.refusal())
	case len(a.body) == 0:
		b = textBlock(b, fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)))
	case isJSON, textual(m) && utf8.Valid(a.body), m == "" && utf8.Valid(a.body):
		b = textBlock(b, string(a.body))
	case textual(m) && strings.EqualFold(params["charset"], "iso-8859-1"):
		b = textBlock(b, latin(a.body))
	default:
		b = fileBlock(b, m, a.body)
	}
	if len(a.notes) > 0 {
		b = textBlock(append(b, ','), strings.Join(a.notes, "\n"))
	}
	b = append(b, ']')
	if tool.OutputSchema != nil && isJSON && !failed && wire.IsObject(a.body) {
		b = append(append(b, `,"structuredContent":`...), a.body...)
	}
	b = fmt.Appendf(b, `,"_meta":{%q:%d}`, MetaStatus, a.status)
	if failed {
		b = append(b, `,"isError":true`...)
	}
	return sallyport.Output{Content: append(b, '}'), IsError: failed}
}

// refusal is what an API said instead of doing it.
func (a answer) refusal() string {
	s := strings.TrimSpace(fmt.Sprintf("HTTP %d %s", a.status, http.StatusText(a.status)))
	if a.moved != "" {
		s += "\nIt redirects to " + a.moved + ", which is not followed."
	}
	if len(a.body) == 0 {
		return s
	}
	if !utf8.Valid(a.body) && !a.cut {
		return s + fmt.Sprintf("\n(%d bytes that are not text)", len(a.body))
	}
	s += "\n" + strings.ToValidUTF8(string(a.body), "�")
	if a.cut {
		s += fmt.Sprintf("\n[cut after %d bytes]", len(a.body))
	}
	return s
}

func textual(kind string) bool {
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+xml") || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "yaml") ||
		kind == "application/xml" || kind == "application/javascript" || kind == "application/x-www-form-urlencoded" || kind == "application/x-ndjson"
}

func latin(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteRune(rune(c))
	}
	return s.String()
}

func textBlock(b []byte, text string) []byte {
	return append(wire.AppendString(append(b, `{"type":"text","text":`...), text), '}')
}

// fileBlock is an image, a sound, or a file.
func fileBlock(b []byte, kind string, body []byte) []byte {
	if kind == "" {
		kind = "application/octet-stream"
	}
	data := base64.StdEncoding.EncodeToString(body)
	for _, what := range []string{"image", "audio"} {
		if strings.HasPrefix(kind, what+"/") {
			b = append(append(append(b, `{"type":"`...), what...), `","mimeType":`...)
			b = append(wire.AppendString(b, kind), `,"data":"`...)
			return append(append(b, data...), `"}`...)
		}
	}
	b = append(b, `{"type":"resource","resource":{"uri":"sallyport:answer","mimeType":`...)
	b = append(wire.AppendString(b, kind), `,"blob":"`...)
	return append(append(b, data...), `"}}`...)
}
