package sandbox

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// An artifactFacts is what structuredContent says of a file beside the content.
type artifactFacts struct {
	Path  string `json:"path"`
	MIME  string `json:"mime_type"`
	Bytes int    `json:"bytes"`
}

// maxLeftOut bounds the names of what was left out.
const maxLeftOut = 32

// artifactNote says what of the output folder is not in the result.
func artifactNote(o Outcome) []string {
	n := len(o.LeftOut)
	if n == 0 {
		return nil
	}
	names := strings.Join(o.LeftOut[:min(n, maxLeftOut)], ", ")
	note := fmt.Sprintf("Of the output folder %d files were left out, as there are too many, they are too large or the tool holds secrets: %s.", n, names)
	if o.Session != "" {
		note += " Read them with sandbox_session: {\"action\":\"get\"}."
	}
	return []string{note}
}

// images by their first bytes: what a file is called says nothing.
var images = []struct{ magic, mime string }{
	{"\x89PNG\r\n\x1a\n", "image/png"},
	{"\xff\xd8\xff", "image/jpeg"},
	{"GIF87a", "image/gif"},
	{"GIF89a", "image/gif"},
}

func mimeOf(b []byte) string {
	for _, i := range images {
		if bytes.HasPrefix(b, []byte(i.magic)) {
			return i.mime
		}
	}
	switch {
	case len(b) >= 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		return "image/webp"
	case utf8.Valid(b) && bytes.IndexByte(b, 0) < 0:
		return "text/plain"
	case bytes.HasPrefix(b, []byte("%PDF-")):
		return "application/pdf"
	}
	return "application/octet-stream"
}

// artifact is a file as MCP content: an image, or else an embedded resource.
func artifact(base, path string, b []byte) any {
	mime := mimeOf(b)
	uri := base + (&url.URL{Path: path}).EscapedPath()
	switch {
	case len(mime) > 6 && mime[:6] == "image/":
		return map[string]any{
			"type": "image", "mimeType": mime, "data": base64.StdEncoding.EncodeToString(b), "_meta": map[string]any{"dev.sallyport/path": path},
		}
	case mime == "text/plain":
		return map[string]any{"type": "resource", "resource": map[string]any{"uri": uri, "mimeType": mime, "text": string(b)}}
	default:
		return map[string]any{"type": "resource", "resource": map[string]any{"uri": uri, "mimeType": mime, "blob": base64.StdEncoding.EncodeToString(b)}}
	}
}
