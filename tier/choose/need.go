package choose

import (
	"encoding/json"
	"slices"
	"time"

	"sallyport.dev/sallyport"
)

// callers reports whether the code is the caller's, and so what arguments say of how
// it runs: those of any other tool are its own business.
func callers(tool sallyport.Tool) bool {
	return tool.Code != nil && tool.Code.Source == "" && slices.Contains([]string{"python", "javascript", "shell"}, tool.Code.Language)
}

// NeedOf is what a call of a tool needs. Arguments count where the code is the
// caller's; they were checked against the tool's schema. What an operator lets all
// tools take does not: only who asks for long work needs a tier that takes it.
// Preconditions: tool.Code is not nil.
func NeedOf(tool sallyport.Tool, args json.RawMessage) Need {
	m := tool.Manifest
	n := Need{
		Trust: m.Trust, Language: tool.Code.Language, Tiers: m.Tiers, Fixed: m.Tier, GPU: m.GPU,
		Timeout: m.Limits.Timeout, Image: m.Image != "", Reach: len(m.Egress) > 0,
	}
	for _, s := range m.Secrets {
		n.Env = n.Env || s.Env != ""
	}
	n.Session = n.Language == "session" // it looks after them
	if !callers(tool) {
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
	if in.Timeout > 0 { // beyond the tool's own limit, the run is refused
		n.Timeout = time.Duration(min(in.Timeout, 1e6) * float64(time.Second))
	}
	return n
}

// Limits are those of a call in a tier: the tool's own, the operator's where it names
// none, and no longer than the tier takes.
func Limits(tool sallyport.Tool, operator sallyport.Limits, tier string) sallyport.Limits {
	l := tool.Manifest.Limits.Or(operator).Or(sallyport.DefaultLimits())
	if can, known := abilities[tier]; known && !can.long {
		l.Timeout = min(l.Timeout, long)
	}
	return l
}

// Reach is what a call may reach: the tool's list, unless the caller took the
// network away.
func Reach(tool sallyport.Tool, args json.RawMessage) []string {
	var in struct {
		Network *string `json:"network"`
	}
	if callers(tool) && json.Unmarshal(args, &in) == nil && in.Network != nil && *in.Network == "none" {
		return nil
	}
	return tool.Manifest.Egress
}

// Of chooses for a call of a tool. What runs in no sandbox has no tier.
func Of(tool sallyport.Tool, args json.RawMessage, lack func(tier string) error) (Choice, error) {
	if tool.Code == nil {
		return Choice{}, nil
	}
	return For(NeedOf(tool, args), lack)
}
