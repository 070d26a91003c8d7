package cli

import (
	"encoding/json"
	"testing"
)

// What a terminal cannot show is named, with its size and where it is.
func TestWhatIsNotShownIsNamed(t *testing.T) {
	for content, want := range map[string]string{
		`{"type":"image","mimeType":"image/png","data":"AAECAw=="}`:                                                             "image, image/png, 4 bytes",
		`{"type":"audio","mimeType":"audio/wav","data":""}`:                                                                     "audio, audio/wav, 0 bytes",
		`{"type":"resource","resource":{"uri":"sandbox://s/output/x.txt","mimeType":"text/plain","text":"hey"}}`:                "resource, sandbox://s/output/x.txt, text/plain, 3 bytes",
		`{"type":"resource","resource":{"uri":"sandbox://s/output/x.bin","mimeType":"application/octet-stream","blob":"AAE="}}`: "resource, sandbox://s/output/x.bin, application/octet-stream, 2 bytes",
		`{"type":"resource_link","uri":"sallyport:a/b","mimeType":"text/plain"}`:                                                "resource_link, sallyport:a/b, text/plain",
		"{\"type\":\"resource\",\"resource\":{\"uri\":\"a\\u001b[2Jb\",\"text\":\"\"}}":                                         "resource, a␛[2Jb, 0 bytes",
	} {
		var c toolContent
		if err := json.Unmarshal([]byte(content), &c); err != nil {
			t.Fatal(err)
		}
		if got := c.String(); got != want {
			t.Errorf("%s: %q, want %q", content, got, want)
		}
	}
}
