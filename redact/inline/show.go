package inline

import (
	"encoding/json"
	"strings"

	"sallyport.dev/sallyport/redact/link"
)

// Text takes the harm out of one text that a client shows by itself: an error, a
// notice, a question. images are those of link.Filter.
func Text(text string, images []string) string {
	f := link.Filter{Images: images}
	f.Learn(text)
	return f.Clean(text)
}

// Show deals with what clients would do with a result: data that is no text, images
// that they would load. It comes before everything else, so that all it makes is
// cleaned and bounded, too. Malformed results are left to who judges them. images and max
// are those of link.Filter and Shelf.Put.
func Show(result json.RawMessage, aside *Shelf, images []string, max int) (shown json.RawMessage, notes []string) {
	raw, lifted := Lift(result)
	raw, large := aside.Put(raw, max)
	if link.Might(raw) {
		f := link.Filter{Images: images}
		texts(raw, func(text string) string { f.Learn(text); return text })
		if raw = texts(raw, f.Clean); len(f.Hosts) > 0 {
			notes = append(notes, "links: made harmless, to "+strings.Join(f.Hosts, ", "))
		}
	}
	return raw, append(append(notes, lifted...), large...)
}
