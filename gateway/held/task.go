package held

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"sallyport.dev/sallyport"
)

// A call that takes long is named to its client, who need not wait any more. The name is
// where its outcome is kept, and who runs it, sealed for the client: nobody can make one,
// and nobody else has anything by it. What the call asks meanwhile, and its cancellation,
// pass by whichever gateway the client comes to.

const (
	prefix  = "run_"
	maxName = 2048 // characters
)

func bindTask(binding string) []byte { return []byte("sallyport task v1\x00" + binding) }

// lasts is sallyport.Request.Lasts.
func (h *call) lasts(l sallyport.Lasting) bool {
	l.Held, l.Replica = h.id[:], h.c.o.Replica
	name, err := h.c.states.name(l)
	if err != nil || len(name) > maxName {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stay(l.Owner) != nil { // too many: the client waits for this one
		return false
	}
	h.name, h.callID, h.still = name, l.CallID, l.Still
	close(h.lasting)
	return true
}

func (s states) name(l sallyport.Lasting) (string, error) {
	plain, err := json.Marshal(l)
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	rand.Read(nonce)
	return prefix + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, plain, bindTask(l.Binding))), err
}

// Named is that of gateway.Held.
func (c *Calls) Named(name, binding string) (l sallyport.Lasting, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(name, prefix))
	if err != nil || len(name) > maxName || len(raw) < chacha20poly1305.NonceSizeX || prefix+base64.RawURLEncoding.EncodeToString(raw) != name {
		return l, errState
	}
	plain, err := c.states.aead.Open(nil, raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:], bindTask(binding))
	if err == nil {
		err = json.Unmarshal(plain, &l)
	}
	if err != nil || len(l.Held) != 16 {
		return l, errState
	}
	return l, nil
}

// Visit is that of gateway.Held.
func (c *Calls) Visit(ctx context.Context, l sallyport.Lasting, v sallyport.Visit) ([]sallyport.Question, error) {
	if l.Replica == c.o.Replica && l.Held == nil {
		return nil, c.stop(l.CallID)
	}
	if l.Replica == c.o.Replica {
		return c.visit([16]byte(l.Held), v)
	}
	if c.o.Peers == nil {
		return nil, errState
	}
	return c.o.Peers.visit(ctx, l, v)
}

// Underway is that of gateway.Held.
func (c *Calls) Underway(callID string, cancel context.CancelCauseFunc) (over func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.underway[callID] = cancel
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.underway, callID)
		cancel(nil)
	}
}

// stop cancels a call that is under way here, for its client.
func (c *Calls) stop(callID string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cancel := c.underway[callID]
	if cancel == nil {
		return errState
	}
	cancel(&sallyport.Cancellation{By: "client"})
	return nil
}

func (c *Calls) visit(id [16]byte, v sallyport.Visit) (open []sallyport.Question, err error) {
	c.mu.Lock()
	h := c.byID[id]
	c.mu.Unlock()
	if h == nil {
		return nil, errState
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.done:
		return nil, h.err
	default:
	}
	if v.Answers != nil {
		if h.still != nil {
			if err := h.still(v.Who); err != nil {
				return nil, err
			}
		}
		h.hand(v.Answers)
	}
	if v.Cancel {
		h.cancel(&sallyport.Cancellation{By: "client"})
	}
	for _, in := range h.open {
		open = append(open, in.unanswered()...)
	}
	return open, nil
}
