package talk

import (
	"encoding/json"
	"sync"

	"sallyport.dev/sallyport"
)

// A hearing passes on what a running call says, cleaned: each notice by itself,
// and output piece by piece as one text, so that no cut hides a secret.
type hearing struct {
	s      Sanitiser
	reader string
	notify func(sallyport.Notice)
	taint  func(findings []string) error // before anything is passed on; what it cannot note is not

	mu      sync.Mutex
	streams map[string]func([]byte) string
	told    int
}

// Notifier is what a job is given to speak with.
func Notifier(s Sanitiser, reader string, notify func(sallyport.Notice), taint func(findings []string) error) func(sallyport.Notice) {
	if notify == nil {
		return func(sallyport.Notice) {}
	}
	h := &hearing{s: s, reader: reader, notify: notify, taint: taint, streams: map[string]func([]byte) string{}}
	return h.hear
}

func (h *hearing) hear(n sallyport.Notice) {
	if h.taint(nil) != nil {
		return
	}
	if n.Stream == "" {
		h.notify(h.s.Notice(h.reader, n))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.streams[n.Stream]
	if next == nil {
		next = h.s.Stream(h.reader)
		h.streams[n.Stream] = next
	}
	text := next(n.Output)
	if text == "" {
		return
	}
	h.told += len(text)
	params, err := json.Marshal(map[string]any{
		"progress": h.told, "message": text, "_meta": map[string]string{"dev.sallyport/stream": n.Stream},
	})
	if err == nil { // a map of plain values
		h.notify(sallyport.Notice{Method: "notifications/progress", Params: params})
	}
}
