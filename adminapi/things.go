package adminapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier/choose"
)

func (s *Server) listTools(c call) (any, error) {
	tools, err := s.Tools.AllTools(c.Context())
	out := make([]ToolInfo, 0, len(tools))
	for _, t := range tools {
		out = append(out, infoOf(t))
	}
	return struct {
		Tools []ToolInfo `json:"tools"`
	}{out}, err
}

// A ToolInfo is the operator's view of a tool.
type ToolInfo struct {
	Name         string               `json:"name"`
	Version      string               `json:"version"`
	Server       string               `json:"server,omitempty"`
	UpstreamName string               `json:"upstream_name,omitempty"`
	Backend      string               `json:"backend"`
	Status       sallyport.ToolStatus `json:"status"`
	Reason       string               `json:"reason,omitempty"`
	Digest       string               `json:"digest"`
	Description  string               `json:"description"`
	Risk         string               `json:"risk,omitempty"`
	ReadOnly     bool                 `json:"read_only,omitempty"`
	Deprecated   string               `json:"deprecated,omitempty"`
	Remarks      []string             `json:"remarks,omitempty"` // what to be wary of
	Code         *CodeInfo            `json:"code,omitempty"`    // of a tool that runs in a sandbox
	Definition   json.RawMessage      `json:"definition,omitempty"`
	Route        *sallyport.Route     `json:"route,omitempty"` // of an operation of an HTTP API; agents do not see it
}

// A CodeInfo says where a tool's code runs.
type CodeInfo struct {
	Language string   `json:"language"`
	Trust    string   `json:"trust"`
	GPU      bool     `json:"gpu,omitempty"`
	Tiers    []string `json:"tiers,omitempty"` // that it may run in
	Tier     string   `json:"tier"`            // that a call would get now
	Reason   string   `json:"tier_reason"`
	Lack     string   `json:"lack,omitempty"` // why a call would be refused
}

func (s *Server) codeOf(c call, t sallyport.Tool) *CodeInfo {
	if t.Code == nil {
		return nil
	}
	got, err := choose.Of(t, nil, func(tier string) error { return s.Sandbox.Lack(c.Context(), tier) })
	i := &CodeInfo{
		Language: t.Code.Language, Trust: cmp.Or(t.Manifest.Trust, "agent"), GPU: t.Manifest.GPU, Tiers: t.Manifest.Tiers,
		Tier: got.Tier, Reason: got.Reason,
	}
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		i.Lack = e.Message + " (" + e.Hint + ")"
	}
	return i
}

func infoOf(t sallyport.Tool) ToolInfo {
	i := ToolInfo{
		Name: t.Name, Version: t.Version, Server: t.Origin.Server, UpstreamName: t.Origin.Name, Backend: t.Origin.Backend,
		Status: t.Status, Reason: t.StatusReason, Digest: t.Digest, Description: t.Description, ReadOnly: t.Manifest.ReadOnly, Remarks: t.Remarks,
	}
	if t.Manifest.Deprecated != nil {
		i.Deprecated = t.Manifest.Deprecated.String()
	}
	if t.Manifest.Risk != nil {
		i.Risk = t.Manifest.Risk.String()
	}
	return i
}

func (s *Server) showTool(c call) (any, error) {
	t, err := s.Tools.ShowTool(c.Context(), c.PathValue("name"))
	i := infoOf(t)
	i.Definition, i.Route = t.Definition, t.Route
	if err == nil {
		i.Code = s.codeOf(c, t)
	}
	return i, err
}

func (s *Server) diffTool(c call) (any, error) {
	return s.Tools.DiffTool(c.Context(), c.PathValue("name"))
}

func (s *Server) approveTool(c call) (any, error) {
	var in struct{ Digest string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	name := c.PathValue("name")
	return struct{}{}, s.Tools.ApproveTool(c.Context(), name, in.Digest, s.audited(c, "tools approve", name, nil))
}

func (s *Server) listServers(c call) (any, error) {
	list, err := s.Servers.ServerStatus(c.Context())
	return struct {
		Servers []ServerStatus `json:"servers"`
	}{orEmpty(list)}, err
}

func (s *Server) addServer(c call) (any, error) {
	var in struct {
		Name   string
		Config json.RawMessage
	}
	if err := c.body(&in); err != nil {
		return nil, err
	}
	return s.Servers.AddServer(c.Context(), in.Name, in.Config, s.audited(c, "servers add", in.Name, s.letIn(in.Config)))
}

// letIn is what the record keeps of a server that an operator let in: what it
// is, masked, and never its environment or headers.
func (s *Server) letIn(config json.RawMessage) any {
	var in struct {
		Command   string   `json:"command,omitempty"`
		Args      []string `json:"args,omitempty"`
		URL       string   `json:"url,omitempty"`
		OpenAPI   string   `json:"openapi,omitempty"`
		Base      string   `json:"base,omitempty"`
		Isolation string   `json:"isolation,omitempty"`
		Egress    []string `json:"egress,omitempty"`
		Roots     any      `json:"roots,omitempty"`
		Secrets   any      `json:"secrets,omitempty"` // their names
		OAuth     any      `json:"oauth,omitempty"`   // with references to secrets
	}
	if err := json.Unmarshal(config, &in); err != nil {
		return nil // AddServer refuses it
	}
	b, err := json.Marshal(in)
	if err != nil {
		return nil
	}
	return s.Mask(b)
}

func (s *Server) removeServer(c call) (any, error) {
	name := c.PathValue("name")
	return struct{}{}, s.Servers.RemoveServer(c.Context(), name, s.audited(c, "servers remove", name, nil))
}

func (s *Server) updateServer(c call) (any, error) {
	name := c.PathValue("name")
	return s.Servers.UpdateServer(c.Context(), name, s.audited(c, "servers update", name, nil))
}

func (s *Server) listSecrets(c call) (any, error) {
	names, err := s.Secrets.SecretNames(c.Context())
	return struct {
		Names []string `json:"names"`
	}{orEmpty(names)}, err
}

func (s *Server) setSecret(c call) (any, error) {
	name := c.PathValue("name")
	if err := checkName("secret", name); err != nil {
		return nil, err
	}
	if s.Decides(name) { // else whoever operates the gateway could decide
		if err := s.identify(&c, confirmed); err != nil {
			return nil, err
		}
	}
	var in struct{ Value string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if in.Value == "" {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "the value is empty", Hint: "pipe it in: printf %s \"$VALUE\" | sallyport secrets set NAME"}
	}
	return struct{}{}, s.Secrets.SetSecret(c.Context(), name, in.Value, c.actor())
}

func (s *Server) removeSecret(c call) (any, error) {
	name := c.PathValue("name")
	return struct{}{}, s.Secrets.RemoveSecret(c.Context(), name, c.actor())
}

func (s *Server) sandboxRun(c call) (any, error) {
	var in SandboxCommand
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if len(in.Argv) == 0 {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "argv is empty: which command?"}
	}
	return s.Sandbox.RunCommand(c.Context(), in)
}

func (s *Server) sandboxList(c call) (any, error) {
	list, err := s.Sandbox.Running(c.Context())
	return struct {
		Sandboxes []SandboxInfo `json:"sandboxes"`
	}{orEmpty(list)}, err
}

func (s *Server) tiers(c call) (any, error) {
	all, err := s.Sandbox.Tiers(c.Context())
	return struct {
		Tiers []TierInfo `json:"tiers"`
	}{orEmpty(all)}, err
}

// openAPI describes the routes.
func openAPI(routes []route) any {
	paths := map[string]map[string]any{}
	for _, r := range routes {
		if paths[r.path] == nil {
			paths[r.path] = map[string]any{}
		}
		needs := map[need]string{nobody: "nothing", operator: "the local socket, or a login", human: "a human's login", confirmed: "a human's login, and just now a passkey of those who have one"}[r.need]
		paths[r.path][strings.ToLower(r.method)] = map[string]any{
			"summary": r.summary, "description": "Needs " + needs + ".",
			"responses": map[string]any{
				"200":     map[string]any{"description": "OK"},
				"default": map[string]any{"description": "a failure: code, step, message, hint, ticket, retry_after, call_id"},
			},
		}
	}
	return map[string]any{
		"openapi": "3.1.0",
		"info":    map[string]any{"title": "Sallyport admin API", "version": "1"},
		"paths":   paths,
	}
}
