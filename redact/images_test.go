package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func noise(n int) []byte {
	random := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = random.Read(b) // never fails
	return b
}

func png(n int) []byte { return append([]byte("\x89PNG\r\n\x1a\n"), noise(n)...) }

type shown struct {
	Content []struct{ Type, Text, Data, MimeType string }
}

func present(t *testing.T, s *Sanitiser, content string) (shown, []string, int) {
	t.Helper()
	out, isError, findings, err := s.Result("", sallyport.Tool{Name: "shot"}, sallyport.Output{Content: json.RawMessage(content)})
	var r shown
	if err != nil || isError || json.Unmarshal(out, &r) != nil {
		t.Fatalf("%.200s, %v, %v", out, isError, err)
	}
	return r, findings, len(out)
}

// FO-31: a screenshot that comes as text becomes the image that it is; other
// binary data is left out with a word; images obey a bound of their own.
func TestFO31ScreenshotsAreNoText(t *testing.T) {
	s := New(Options{MaxBytes: 100 << 10})
	picture := png(1 << 20)
	b64 := base64.StdEncoding.EncodeToString(picture)
	var wrapped strings.Builder
	for i := 0; i < len(b64); i += 76 {
		wrapped.WriteString(b64[i:min(i+76, len(b64))] + "\n")
	}
	text := func(s string) string {
		q, _ := json.Marshal(s)
		return `{"content":[{"type":"text","text":` + string(q) + `}]}`
	}
	for what, in := range map[string]string{
		"bare": b64, "data URI": "data:image/png;base64," + b64, "in Markdown": "Here it is: ![shot](data:image/png;base64," + b64 + ") as you asked", "wrapped": wrapped.String(),
		"in JSON": `{"screenshot":"` + b64 + `","ok":true}`, "url-safe": base64.RawURLEncoding.EncodeToString(picture),
	} {
		r, findings, _ := present(t, s, text(in))
		image := r.Content[len(r.Content)-1]
		got, err := base64.StdEncoding.DecodeString(image.Data)
		if err != nil || image.Type != "image" || image.MimeType != "image/png" || !bytes.Equal(got, picture) {
			t.Errorf("%s: %s %s, %d bytes, %.200s, %v", what, image.Type, image.MimeType, len(got), r.Content[0].Text, findings)
		}
		if len(findings) == 0 {
			t.Errorf("%s: nothing is told", what)
		}
		if n := len(r.Content); n == 2 && (len(r.Content[0].Text) > 200 || !strings.Contains(r.Content[0].Text, fmt.Sprintf("[image/png: %d bytes]", len(picture)))) {
			t.Errorf("%s: with the text %.300s", what, r.Content[0].Text)
		}
	}
	r, _, n := present(t, s, text("file: "+base64.StdEncoding.EncodeToString(noise(300<<10))+" end"))
	if n > 1000 || r.Content[0].Text != fmt.Sprintf("file: [binary data: %d bytes] end", 300<<10) {
		t.Errorf("other data: %d bytes, %.200s", n, r.Content[0].Text)
	}
	for size, whole := range map[int]bool{7 << 20: true, 9 << 20: false} {
		b64 := base64.StdEncoding.EncodeToString(png(size))
		r, _, _ := present(t, s, `{"content":[{"type":"text","text":"before"},{"type":"image","mimeType":"image/png","data":"`+b64+`"}]}`)
		if got := r.Content[1]; whole != (got.Data == b64) || !whole && !strings.Contains(got.Text, "left out") || r.Content[0].Text != "before" {
			t.Errorf("an image of %d bytes: %s %.100s", size, got.Type, got.Text)
		}
	}
	// Controls: what is no large base64, and what is text in base64, stays, and is read.
	for _, in := range []string{strings.Repeat("word ", 4000), strings.Repeat("abcdef0123456789", 1000), base64.StdEncoding.EncodeToString([]byte(strings.Repeat("plain words, ", 300)))} {
		if r, _, _ := present(t, s, text(in)); len(r.Content) != 1 || r.Content[0].Text != in {
			t.Errorf("changed: %.80s", in)
		}
	}
	secret := "postgres://app:tr0ub4dor-and-3@db/x"
	if r, _, _ := present(t, s, text(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("plain words, ", 3000)+secret)))); !strings.Contains(r.Content[0].Text, "masked") {
		t.Errorf("text in base64 is not read: %.200s", r.Content[0].Text)
	}
}

// What stands for data that is kept aside cannot be had by writing it.
func TestFO31MarksAreNoData(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString(png(5000))
	content := `{"content":[{"type":"text","text":"kept aside 0"},{"type":"image","mimeType":"image/png","data":"` + b64 + `"}]}`
	if r, _, _ := present(t, New(Options{}), content); r.Content[0].Text != "kept aside 0" || r.Content[1].Data != b64 {
		t.Errorf("%+v", r.Content[0])
	}
}
