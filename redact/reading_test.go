package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact"
)

func cleaned(t *testing.T, s *redact.Sanitiser, content string) string {
	t.Helper()
	clean, isError, _, err := s.Result("", sallyport.Tool{}, sallyport.Output{Content: json.RawMessage(content)})
	if err != nil || isError {
		t.Fatalf("%s, %v", clean, err)
	}
	return string(clean)
}

// A text that comes as a blob is cleaned as one; other blobs stay as they are.
func TestBlobsAreRead(t *testing.T) {
	s := redact.New(redact.Options{})
	resource := func(b string) string {
		return `{"content":[{"type":"resource","resource":{"uri":"x:1","blob":"` + base64.StdEncoding.EncodeToString([]byte(b)) + `"}}]}`
	}
	for _, pad := range []int{0, 4 << 10} {
		text := strings.Repeat("ä ", pad) + "DB=postgres://app:tr0ub4dor-and-3@db/x\n"
		var got struct {
			Content []struct{ Resource struct{ Blob []byte } }
		}
		if err := json.Unmarshal([]byte(cleaned(t, s, resource(text))), &got); err != nil {
			t.Fatalf("what comes out is not base64: %v", err)
		}
		out := string(got.Content[0].Resource.Blob)
		if strings.Contains(out, "tr0ub4dor") || !strings.HasSuffix(out, "@db/x\n") || len(out) < pad {
			t.Errorf("%d bytes before: %.200s", pad, out)
		}
	}
	for _, binary := range []string{"\x00\x01\x02", "\xff\xfe" + strings.Repeat("\x80", 2<<10), "plain\u200b text\x1b[1m"} {
		if in := resource(binary); cleaned(t, s, in) != in {
			t.Errorf("%q was changed", binary)
		}
	}
}

// A resource that is too large loses the end of its text, not all of it.
func TestLargeResourceIsCut(t *testing.T) {
	s := redact.New(redact.Options{MaxBytes: 64 << 10})
	secret := "postgres://app:tr0ub4dor-and-3@db/x "
	in := `{"content":[{"type":"resource","resource":{"uri":"x:1","mimeType":"text/plain","text":"` + secret + strings.Repeat("0123456789", 30<<10) + `"}},` +
		`{"type":"resource","resource":{"uri":"x:2","text":"more"}}]}`
	out := cleaned(t, s, in)
	var got struct {
		Content []struct {
			Type, Text string
			Resource   struct{ URI, MimeType, Text string }
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Content) != 2 || len(out) > 64<<10 {
		t.Fatalf("%d bytes, %v, %+v", len(out), err, got)
	}
	r := got.Content[0].Resource
	if r.URI != "x:1" || r.MimeType != "text/plain" || len(r.Text) < 32<<10 || strings.Contains(r.Text, "tr0ub4dor") || !strings.Contains(r.Text, "[truncated: kept ") {
		t.Errorf("%d bytes of %s: %.80s", len(r.Text), r.URI, r.Text)
	}
	if !strings.HasPrefix(got.Content[1].Text, "[truncated: kept ") {
		t.Errorf("%+v", got.Content[1])
	}
	long := `{"content":[{"type":"resource","resource":{"uri":"x:` + strings.Repeat("y", 8<<10) + `","text":"` + strings.Repeat("z", 80<<10) + `"}}]}`
	if out := cleaned(t, s, long); len(out) > 64<<10 {
		t.Errorf("with a long address: %d bytes", len(out))
	}
}
