package adminapi

import (
	"encoding/json"
	"net/http"

	"sallyport.dev/sallyport"
)

// putFile stores the request's body, of whatever size, in a session of an agent.
func (s *Server) putFile(c call) (any, error) {
	return s.move(c, map[string]any{"action": "put", "path": c.URL.Query().Get("path")}, &sallyport.Transfer{From: c.file, Size: c.ContentLength})
}

// getFile answers with the content of a file.
func (s *Server) getFile(c call) (any, error) {
	out := &download{w: c.w}
	_, err := s.move(c, map[string]any{"action": "get", "path": c.URL.Query().Get("path")}, &sallyport.Transfer{To: out})
	if err != nil && out.begun {
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
	if err == nil {
		out.begin()
	}
	return sent{}, err
}

// sent is the answer of a route that has written its own.
type sent struct{}

// A download begins with the first byte, so that a refusal can still be one.
type download struct {
	w     http.ResponseWriter
	begun bool
}

func (d *download) begin() {
	if !d.begun {
		d.begun = true
		h := d.w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Disposition", "attachment")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		d.w.WriteHeader(http.StatusOK)
	}
}

func (d *download) Write(b []byte) (int, error) {
	d.begin()
	return d.w.Write(b)
}

// move goes the whole path as the agent whose session it is.
func (s *Server) move(c call, args map[string]any, t *sallyport.Transfer) (any, error) {
	q := c.URL.Query()
	token, _, err := s.Tokens.Issue(c.Context(), q.Get("agent"), "", c.actor())
	if err != nil {
		return nil, err
	}
	args["session"] = c.PathValue("session")
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	res, err := s.Gateway.Await(c.Context(), sallyport.Request{
		Credential: token, Door: "admin", Profile: q.Get("profile"), Ticket: q.Get("ticket"), Size: len(raw), Transfer: t,
		Operation: sallyport.Operation{Kind: sallyport.MoveFile, Target: sallyport.FilesTool, Args: raw},
	}, 0, nil)
	if err != nil {
		return nil, err
	}
	return CallResult{res.CallID, res.Content, res.IsError, res.Replay, res.Twin}, nil
}
