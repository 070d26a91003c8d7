package gvisor

import (
	"log/slog"
	"time"
)

// Between two attempts to delete what is left of a sandbox.
const (
	buryFirst = time.Second
	buryLast  = 30 * time.Second
)

// bury deletes the traces of a dead sandbox. What something still holds is
// listed as being deleted, and tried again until it is gone or the host closes;
// then it is the next host's, which does not start beside it.
func (h *Host) bury(s *sandbox) {
	err := s.remove()
	if err == nil {
		return
	}
	slog.Warn("a destroyed sandbox left something behind; it is deleted when nothing holds it", "sandbox", s.id, "err", err)
	h.mu.Lock()
	h.deleting[s.id] = s
	h.mu.Unlock()
	h.graves.Go(func() {
		for pause := buryFirst; ; pause = min(2*pause, buryLast) {
			select {
			case <-h.closing:
				return
			case <-time.After(pause):
			}
			if s.remove() == nil {
				h.mu.Lock()
				delete(h.deleting, s.id)
				h.mu.Unlock()
				return
			}
		}
	})
}
