package crash

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// What clients do while gateways die: calls with keys, an approved call, a saga
// whose third step fails. They never give up, and never change a key.

// How an act ended, as its client was told.
const (
	done    = "done"
	failed  = "failed"
	unknown = "unknown"
)

// A story is what one client did and was told.
type story struct {
	name    string
	ends    map[string]string // by act: done, failed or unknown
	tickets map[string]string // approvals that were confirmed: by ticket, the act
	saga    string            // how its saga ended
	err     error             // it could not be told to its end
}

// A client plays a story.
type client struct {
	*house
	story
	settled int // outcomes that an operator had to find out
}

// play plays the whole script.
func (h *house) play(name string) *client {
	c := &client{house: h, story: story{name: name, ends: map[string]string{}, tickets: map[string]string{}}}
	for _, tool := range []string{"keyed", "queried", "blind", "lost", "risky"} {
		if c.err == nil {
			c.err = c.act(tool)
		}
	}
	if c.err == nil {
		c.err = c.undone()
	}
	return c
}

// act makes one call, until it is known how it ended or that nobody can know.
func (c *client) act(tool string) error {
	op := c.name + "." + tool
	args := fmt.Sprintf(`{"op":%q}`, op)
	var a reply
	var ticket string
	if tool == "keyed" || tool == "queried" {
		defer c.twin(tool, args, op)()
	}
	for deadline := time.Now().Add(enough); time.Now().Before(deadline); {
		a = c.call("t__"+tool, args, op, ticket)
		switch {
		case a.ok():
			c.ends[op] = done
			return nil
		case a.Code == "outcome_unknown" && tool == "blind":
			c.ends[op] = unknown
			return nil
		case a.Code == "outcome_unknown":
			if err := c.resolve(tool, op); err != nil {
				return err
			}
		case a.Code == "approval_pending":
			if err := c.approve(a.Ticket, op); err != nil {
				return err
			}
			ticket = a.Ticket
		case a.refused() && !a.again():
			c.ends[op] = failed
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s does not end: %s", op, a)
}

// twin is another process of the same agent, which asks for the same under the
// same key, at the same time.
func (c *client) twin(tool, args, op string) (stop func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			c.call("t__"+tool, args, op, "")
			select {
			case <-over:
				return
			case <-time.After(25 * time.Millisecond):
			}
		}
	}()
	return func() { close(over); <-gone }
}

// approve is the human's part. The ticket counts as decided when the human was
// told so.
func (c *client) approve(ticket, op string) error {
	approved := func() bool {
		r := c.Run("", "approvals", "show", ticket, "--json")
		var tk struct{ State string }
		return json.Unmarshal([]byte(r.Out), &tk) == nil && (tk.State == "approved" || tk.State == "consumed")
	}
	answered := c.sights.note(wish{key: op, what: "approve"})
	err := c.operate(approved, "approvals", "approve", ticket)
	if err == nil {
		c.tickets[ticket] = op
		answered("ok")
	}
	return err
}

// resolve is the operator's: it asks the target whether the call acted. A target
// that honours keys is not asked, the call is made again.
func (c *client) resolve(tool, op string) error {
	call, word := c.unknown()[op], failed // whose outcome is looked for is known before the target is asked
	if tool != "keyed" && c.acted(op) {
		word = done
	}
	return c.settle("t__"+tool, op, call, word, "the target says so")
}

// settle says how a call ended: that one, not a later one under its key.
func (c *client) settle(tool, key, call, word, why string) error {
	if call == "" {
		return nil // it is known meanwhile
	}
	c.settled++
	answered := c.sights.note(wish{key: key, what: "resolve", word: word})
	resolved := func() bool { return c.unknown()[key] != call }
	err := c.operate(resolved, "reservations", "resolve", "agent", tool, key, word, "--call", call, "--reason", why)
	if err == nil {
		answered("ok")
	}
	return err
}

// acted asks the target, once all that the dead gateway had sent was carried out.
func (c *client) acted(op string) bool {
	resp, err := speaker.Get(c.target + "/settled")
	if err != nil {
		c.t.Error(err)
		return false
	}
	resp.Body.Close()
	return slices.Contains(acts(c.t, c.dir), "effect "+op)
}

// unknown are the calls whose outcome is unknown, by key.
func (h *house) unknown() map[string]string {
	return h.must("SELECT key, call_id FROM reservations WHERE state = 'unknown'")
}

func (c *client) plan() string {
	step := func(id, tool string) string {
		return fmt.Sprintf(`{"id":%q,"tool":"t__%s","arguments":{"op":"%s.saga.%s"},"compensate":{"tool":"t__%s","arguments":{"op":"%s.saga.%s.undo"}}}`,
			id, tool, c.name, id, tool, c.name, id)
	}
	return fmt.Sprintf(`{"plan":{"name":"saga-%s","steps":[%s,%s,{"id":"three","tool":"t__refuse","arguments":{},"compensate":"none"}]}}`,
		c.name, step("one", "queried"), step("two", "keyed"))
}

// A toldSaga is what saga_status says.
type toldSaga struct {
	ID, State, Reason string
	Steps             []toldStep
}

type toldStep struct {
	ID, State string
	Attempts  []struct{ Undo bool }
}

// attempt counts those in the direction in which the step is unknown.
func (st toldStep) attempt() (n int) {
	for _, a := range st.Attempts {
		if a.Undo == (st.State == "undo_unknown") {
			n++
		}
	}
	return n
}

// undone runs a saga whose third step fails, and waits until it is undone. Where
// it is stuck with an outcome that nobody knows, an operator finds that out.
func (c *client) undone() error {
	var a reply
	var s toldSaga
	for deadline := time.Now().Add(enough); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if s.ID == "" {
			a = c.call("saga_run", c.plan(), c.name+".saga", "")
			if a.Code == "outcome_unknown" { // saga_status knows: its list is the target that can be asked
				call, word := c.unknown()[c.name+".saga"], failed
				if id := c.find(); id != "" {
					word = done
				}
				if err := c.settle("saga_run", c.name+".saga", call, word, "saga_status says so"); err != nil {
					return err
				}
			}
			if a.refused() && !a.again() && a.Code != "outcome_unknown" {
				break
			}
			if s.ID = a.saga().ID; s.ID == "" && a.ok() {
				s.ID = c.find()
			}
			continue
		}
		if a = c.call("saga_status", fmt.Sprintf(`{"id":%q,"wait_seconds":5}`, s.ID), "", ""); !a.ok() {
			continue
		}
		s = a.saga()
		if c.saga = s.State; s.State == "compensated" {
			return nil
		}
		if err := c.unstick(s); err != nil {
			return err
		}
	}
	return fmt.Errorf("the saga of %s does not end: %s, %+v", c.name, a, s)
}

// find looks for the client's saga among all.
func (c *client) find() string {
	for id := range c.must(`SELECT id, state FROM sagas WHERE doc LIKE '%"saga-` + c.name + `"%'`) {
		return id
	}
	return ""
}

func (c *client) unstick(s toldSaga) error {
	for _, st := range s.Steps {
		op := c.name + ".saga." + st.ID
		if st.State == "undo_unknown" {
			op += ".undo"
		} else if st.State != "unknown" {
			continue
		}
		word := failed
		if c.acted(op) {
			word = done
		}
		c.settled++
		moved := func() bool {
			now := c.status(s.ID)
			return now.ID == s.ID && !slices.ContainsFunc(now.Steps, func(n toldStep) bool {
				return n.ID == st.ID && n.State == st.State && n.attempt() == st.attempt()
			})
		}
		if err := c.operate(moved, "saga", "resolve", s.ID, st.ID, word, "--attempt", fmt.Sprint(st.attempt()), "--reason", "the target says so"); err != nil {
			return err
		}
	}
	return nil
}

// status is what an operator is told of a saga, zero if nobody answers.
func (h *house) status(id string) (s toldSaga) {
	_ = json.Unmarshal([]byte(h.Run("", "saga", "status", id, "--json").Out), &s)
	return s
}

// A reply is what came of a request.
type reply struct {
	Code, Ticket string
	body         string
	answered     bool
	isError      bool
	structured   json.RawMessage
}

func (r reply) String() string { return fmt.Sprintf("%s %.400s", r.Code, r.body) }

func (r reply) ok() bool { return r.answered && !r.isError && r.Code == "" }

func (r reply) refused() bool { return r.answered && r.isError }

// again reports whether the refusal is for now only.
func (r reply) again() bool {
	return slices.Contains([]string{"in_flight", "unavailable", "rate_limited", "not_found", "unauthenticated", "timeout", "canceled"}, r.Code)
}

func (r reply) saga() (s toldSaga) {
	_ = json.Unmarshal(r.structured, &s) // else it is none
	return s
}

var speaker = &http.Client{Timeout: enough, Transport: &http.Transport{DisableKeepAlives: true}}

// call asks once, and keeps what is answered about the key.
func (h *house) call(tool, args, key, ticket string) (r reply) {
	if key != "" {
		answered := h.sights.note(wish{key: key, what: "call"})
		defer func() {
			if r.Code != "in_flight" { // somebody else's call runs
				answered(r.end(), r)
			}
		}()
	}
	return h.send(tool, args, key, ticket)
}

// end is what a reply says of the key.
func (r reply) end() string {
	switch {
	case r.ok():
		return done
	case r.Code == "outcome_unknown":
		return unknown
	case r.Code == "approval_pending":
		return pending
	case r.refused() && !r.again():
		return failed
	}
	return nobody
}

func (h *house) send(tool, args, key, ticket string) (r reply) {
	h.mu.Lock()
	token := h.token
	h.mu.Unlock()
	meta := `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	if key != "" {
		meta += fmt.Sprintf(`,"dev.sallyport/idempotencyKey":%q`, key)
	}
	if ticket != "" {
		meta += fmt.Sprintf(`,"dev.sallyport/ticket":%q`, ticket)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{%s}}}`, tool, args, meta)
	req, err := http.NewRequest(http.MethodPost, h.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		h.t.Error(err)
		return r
	}
	for k, v := range map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool} {
		req.Header.Set(k, v)
	}
	resp, err := speaker.Do(req)
	if err != nil {
		return r // nobody answers
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return r
	}
	if resp.StatusCode == http.StatusUnauthorized {
		if token, err := h.newToken(); err == nil {
			h.mu.Lock()
			h.token = token
			h.mu.Unlock()
		}
		return r
	}
	return read(string(b))
}

func read(body string) (r reply) {
	if i := strings.LastIndex(body, "data: "); i >= 0 && !strings.HasPrefix(body, "{") {
		body = body[i+len("data: "):]
	}
	var m struct {
		Result *struct {
			StructuredContent json.RawMessage
			IsError           bool
		}
		Error *struct {
			Message string
			Data    struct{ Code, Ticket string }
		}
	}
	if json.Unmarshal([]byte(body), &m) != nil {
		return r
	}
	r.body = body
	switch {
	case m.Result != nil:
		r.answered, r.isError, r.structured = true, m.Result.IsError, m.Result.StructuredContent
		var refusal struct{ Code, Ticket string }
		if r.isError {
			_ = json.Unmarshal(m.Result.StructuredContent, &refusal) // other shapes have no code
		}
		r.Code, r.Ticket = refusal.Code, refusal.Ticket
	case m.Error != nil:
		r.answered, r.isError, r.Code, r.Ticket = true, true, m.Error.Data.Code, m.Error.Data.Ticket
	}
	return r
}
