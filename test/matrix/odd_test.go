package matrix

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// odd is a server by hand of which clients that check every member would refuse each
// list, and the result of its call: what others list must not go with it.
func odd(t *testing.T) upstream {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &m) // what is no message is no method that is known
		result, known := oddAnswers[m.Method]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case !known:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`, m.ID)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		}
	}))
	t.Cleanup(s.Close)
	return upstream{"odd", "by hand, with what strict clients refuse", stage.Server{URL: s.URL}, map[string]step{
		"call":     {Name: "numbers", want: `[1,2]`},
		"resource": {Name: "doc://odd", want: "what is odd"},
		"prompt":   {Name: "greet", want: "hello"},
	}}
}

var oddAnswers = map[string]string{
	"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{}},"serverInfo":{"name":"odd","version":"1"}}`,
	"tools/list": `{"tools":[
		{"name":"numbers","inputSchema":{},"outputSchema":{"type":"array"}},
		{"name":"open","inputSchema":{"type":["object","null"],"properties":{"a":true,"b":false},"required":null},"outputSchema":true},
		{"name":"nulls","title":null,"description":null,"icons":null,"annotations":null,"execution":null,"_meta":null,"inputSchema":{"properties":null}},
		{"name":"words","title":5,"icons":[{}],"annotations":{"readOnlyHint":"yes"},"execution":{"taskSupport":"maybe"},"_meta":"x","inputSchema":{"type":"object","properties":{"n":{"minimum":1,"exclusiveMinimum":true},"l":{"items":[{"type":"string"}]}}}},
		{"name":7,"inputSchema":{}}, {"inputSchema":{}}, null]}`,
	"resources/list":           `{"resources":[{"uri":"doc://odd"},{"uri":"doc://nulls","name":null,"mimeType":null,"size":"1","annotations":{"priority":9}},{"name":"none"},7]}`,
	"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"doc://{a}","name":null,"description":null}]}`,
	"prompts/list":             `{"prompts":[{"name":"greet","arguments":null,"title":null},{"name":"other","arguments":[{"name":"a","required":"yes"},{"description":"b"}]},{"name":null}]}`,
	"tools/call":               `{"isError":null,"_meta":null,"content":[{"type":"text","text":"[1,2]","annotations":null}],"structuredContent":[1,2]}`,
	"resources/read":           `{"contents":[{"uri":"doc://odd","mimeType":null,"text":"what is odd","blob":null}]}`,
	"prompts/get":              `{"description":null,"messages":[{"role":"user","content":{"type":"text","text":"hello","_meta":null}}]}`,
}
