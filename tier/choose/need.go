package choose

import (
	"encoding/json"
	"time"

	"sallyport.dev/sallyport"
)

// NeedOf is what a call of a tool needs. Arguments count where the code is the
// caller's; they were checked against the tool's schema.
// Preconditions: tool.Code is not nil.
func NeedOf(tool sallyport.Tool, args json.RawMessage, limits sallyport.Limits) Need {
	m := tool.Manifest
	n := Need{
		Trust: m.Trust, Language: tool.Code.Language, Tiers: m.Tiers, Fixed: m.Tier, GPU: m.GPU,
		Timeout: limits.Timeout, Image: m.Image != "", Reach: len(m.Egress) > 0,
	}
	for _, s := range m.Secrets {
		n.Env = n.Env || s.Env != ""
	}
	n.Session = n.Language == "session" // it looks after them
	if tool.Code.Source != "" || n.Language != "python" && n.Language != "javascript" && n.Language != "shell" {
		return n
	}
	var in struct {
		Tier    string                     `json:"tier"`
		Session string                     `json:"session"`
		Image   string                     `json:"image"`
		Network string                     `json:"network"`
		Files   map[string]json.RawMessage `json:"files"`
		Tools   []json.RawMessage          `json:"tools"`
		Timeout float64                    `json:"timeout_seconds"`
	}
	if json.Unmarshal(args, &in) != nil {
		return n
	}
	n.Asked, n.Session, n.Image = in.Tier, in.Session != "", n.Image || in.Image != ""
	n.Files, n.Calls = len(in.Files) > 0, len(in.Tools) > 0
	n.Reach = n.Reach && in.Network != "none"
	if in.Timeout > 0 && in.Timeout < n.Timeout.Seconds() {
		n.Timeout = time.Duration(in.Timeout * float64(time.Second))
	}
	return n
}

// Reach is what a call may reach: the tool's list, unless the caller took the
// network away.
func Reach(tool sallyport.Tool, args json.RawMessage) []string {
	var in struct {
		Network *string `json:"network"`
	}
	if tool.Code != nil && json.Unmarshal(args, &in) == nil && in.Network != nil && *in.Network == "none" {
		return nil
	}
	return tool.Manifest.Egress
}

// Of chooses for a call of a tool. What runs in no sandbox has no tier.
func Of(tool sallyport.Tool, args json.RawMessage, limits sallyport.Limits, lack func(tier string) error) (Choice, error) {
	if tool.Code == nil {
		return Choice{}, nil
	}
	return For(NeedOf(tool, args, limits), lack)
}
