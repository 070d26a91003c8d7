package adminapi

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

func (s *Server) login(c call) (any, error) {
	var in struct{ Name, Password string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	token := ""
	if !c.peer.Local {
		token = rand.Text()
		c.peer = remotePeer(token)
	}
	expires, err := s.Logins.Login(c.Context(), c.peer, in.Name, in.Password)
	if err != nil {
		return nil, err
	}
	return struct {
		Name    string    `json:"name"`
		Expires time.Time `json:"expires"`
		Token   string    `json:"token,omitempty"` // TCP only: Authorization: Bearer
	}{in.Name, expires, token}, nil
}

func (s *Server) logout(c call) (any, error) {
	s.Logins.Logout(c.peer)
	return struct{}{}, nil
}

func (s *Server) status(c call) (any, error) { return s.Status(c.Context()), nil }

func (s *Server) reload(c call) (any, error) { return struct{}{}, s.Policies() }

// A Call asks for one tool call as an agent.
type Call struct {
	Agent   string          `json:"agent"`
	Tool    string          `json:"tool"`
	Args    json.RawMessage `json:"args"`
	Key     string          `json:"key,omitempty"`
	Ticket  string          `json:"ticket,omitempty"`
	Profile string          `json:"profile,omitempty"`
	Wait    float64         `json:"wait_seconds,omitempty"` // for a human
}

// A CallResult is what came of it.
type CallResult struct {
	CallID  string          `json:"call_id"`
	Result  json.RawMessage `json:"result"`
	IsError bool            `json:"is_error"`
	Replay  bool            `json:"replay"`
	Twin    string          `json:"twin,omitempty"` // the identical call that it repeats
}

// callTool goes the whole path as the agent, with a token that says which
// operator asked for it.
func (s *Server) callTool(c call) (any, error) {
	var in Call
	if err := c.body(&in); err != nil {
		return nil, err
	}
	token, _, err := s.Tokens.Issue(c.Context(), in.Agent, in.Profile, c.actor())
	if err != nil {
		return nil, err
	}
	res, err := s.Gateway.Await(c.Context(), sallyport.Request{
		Credential: token, Door: "admin", Profile: in.Profile, Key: in.Key, Ticket: in.Ticket, Size: len(in.Args),
		Operation: sallyport.Operation{Kind: sallyport.CallTool, Target: in.Tool, Args: in.Args},
	}, time.Duration(in.Wait*float64(time.Second)), nil)
	if err != nil {
		return nil, err
	}
	return CallResult{res.CallID, res.Content, res.IsError, res.Replay, res.Twin}, nil
}

// explain says how policy and risk would decide the same call.
func (s *Server) explain(c call) (any, error) {
	var in Call
	if err := c.body(&in); err != nil {
		return nil, err
	}
	token, _, err := s.Tokens.Issue(c.Context(), in.Agent, in.Profile, c.actor())
	if err != nil {
		return nil, err
	}
	return s.Gateway.Explain(c.Context(), sallyport.Request{
		Credential: token, Door: "admin", Profile: in.Profile,
		Operation: sallyport.Operation{Kind: sallyport.CallTool, Target: in.Tool, Args: in.Args},
	})
}

func (s *Server) token(c call) (any, error) {
	var in struct{ Agent, Profile string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	token, expires, err := s.Tokens.Issue(c.Context(), in.Agent, in.Profile, c.actor())
	return struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires"`
	}{token, expires}, err
}

func (s *Server) listAgents(c call) (any, error) {
	agents, err := s.Agents.ListAgents(c.Context())
	return struct {
		Agents []sallyport.Agent `json:"agents"`
	}{orEmpty(agents)}, err
}

// An AgentSecret is shown once.
type AgentSecret struct {
	ID     string `json:"id"`
	Secret string `json:"secret,omitempty"`
}

func (s *Server) addAgent(c call) (any, error) {
	var in struct {
		ID    string
		Roles []string
	}
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if err := checkName("agent", in.ID); err != nil {
		return nil, err
	}
	secret, err := s.Agents.AddAgent(c.Context(), in.ID, in.Roles, s.audited(c, "agents add", in.ID, map[string][]string{"roles": in.Roles}))
	return AgentSecret{in.ID, secret}, err
}

func (s *Server) changeAgent(c call) (any, error) {
	id, change := c.PathValue("id"), c.PathValue("change")
	e := s.audited(c, "agents "+change, id, nil)
	switch change {
	case "rotate":
		secret, err := s.Agents.RotateAgent(c.Context(), id, e)
		return AgentSecret{id, secret}, err
	case "suspend":
		return AgentSecret{ID: id}, s.Agents.SetAgentState(c.Context(), id, "suspended", e)
	case "resume":
		return AgentSecret{ID: id}, s.Agents.SetAgentState(c.Context(), id, "active", e)
	case "revoke":
		return AgentSecret{ID: id}, s.Agents.SetAgentState(c.Context(), id, "revoked", e)
	}
	return nil, &sallyport.Error{Code: sallyport.NotFound, Message: "no such change: " + change, Hint: "rotate, suspend, resume or revoke"}
}

// checkName bounds the names that operators give.
func checkName(what, name string) error {
	ok := name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == "" && name[0] != '.' && name[0] != '-'
	if !ok {
		return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("bad %s name %q", what, name),
			Hint: "1 to 64 of A-Z a-z 0-9 _ - . and not starting with . or -"}
	}
	return nil
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
