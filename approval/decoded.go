package approval

import (
	"strings"

	"sallyport.dev/sallyport/redact/encoded"
)

const (
	maxDecoded = 64 << 10 // bytes of a text that is looked into
	mostViews  = 4        // that are shown of one text
	layers     = 3        // of encodings around each other
	gains      = 8        // bytes that an encoding adds at least, or it hides nothing
)

// decoded is what a text says once what is encoded in it is read: percent-encoding,
// escapes, entities, base64 in a sentence. Only what is plain text then is told, and
// only where it is clearly something else than what stands there.
func decoded(s string) (out []string) {
	if len(s) > maxDecoded {
		return nil
	}
	seen := map[string]bool{s: true}
	texts := []string{s}
	for range layers {
		var inner []string
		for _, text := range texts {
			for _, view := range encoded.Views(text) {
				if len(text)-len(view) >= gains && plain(view) && !seen[view] && !strings.Contains(s, view) {
					seen[view] = true
					inner = append(inner, view)
				}
			}
		}
		out, texts = append(out, inner...), inner[:min(len(inner), mostViews)]
	}
	return out[:min(len(out), mostViews)]
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x7f || r < ' ' && r != '\n' && r != '\t' && r != '\r' })
}
