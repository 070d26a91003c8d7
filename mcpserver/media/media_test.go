package media

import "testing"

func TestParseAccept(t *testing.T) {
	both, json, stream := Accepted{true, true}, Accepted{JSON: true}, Accepted{Stream: true}
	for in, want := range map[string]Accepted{
		"application/json, text/event-stream": both, "text/event-stream;q=0.5,Application/JSON": both, "*/*": both, "text/*, application/*": both,
		"application/json": json, "text/event-stream": stream, "text/html": {}, "": {}, ",": {},
		"application/json;q=0, text/event-stream": stream, "application/json;q=0.0, text/event-stream": stream, "application/json; q=0.000, text/event-stream": stream,
		"application/json;q=0.001": json, "application/json;q=1": json,
	} {
		if got := ParseAccept([]string{in}); got != want {
			t.Errorf("%q: %+v, want %+v", in, got, want)
		}
	}
	if got := ParseAccept([]string{"application/json", "text/event-stream"}); got != both {
		t.Errorf("on two lines: %+v", got)
	}
}

// TO-26: what two readers could take for different encodings is no JSON.
func TestTO26_ContentTypes(t *testing.T) {
	for in, want := range map[string]bool{
		"application/json": true, "Application/JSON; charset=\"UTF-8\"": true, "application/json;charset=utf-8": true, "application/json; x=y": true,
		"application/json; charset=utf-16": false, "application/json; charset=utf-8; charset=utf-16": false, "application/json, text/plain": false,
		"application/json-patch+json": false, "text/json": false, "application/jsonl": false, "": false, "application/json; charset": false,
	} {
		if got := IsJSON(in); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}
