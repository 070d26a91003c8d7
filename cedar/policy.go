package cedar

import (
	"fmt"
	"slices"

	cedargo "github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"sallyport.dev/sallyport/gateway"
)

// A policy is one compiled policy with its annotations.
type policy struct {
	id        cedargo.PolicyID
	src       *cedargo.Policy
	approval  bool
	noNetwork bool
	message   string
	hint      string
	args      bool // its conditions read the arguments
}

// annotations lists what each annotation may say; nil means any text. An
// unknown one is refused: a misspelt @approval must not vanish.
var annotations = map[types.AnnotationKey][]types.String{
	"id": nil, "message": nil, "hint": nil, "description": nil,
	"approval": {"required"}, "network": {"none"},
}

// newPolicy reads the annotations of src. defaultID is used without an @id.
func newPolicy(src *cedargo.Policy, defaultID string) (*policy, error) {
	p := &policy{id: cedargo.PolicyID(defaultID), src: src}
	for key, value := range src.Annotations() {
		allowed, known := annotations[key]
		if !known {
			return nil, fmt.Errorf("unknown annotation @%s: want @id, @message, @hint, @description, @approval or @network", key)
		}
		if allowed != nil && !slices.Contains(allowed, value) {
			return nil, fmt.Errorf("@%s(%q): want @%s(%q)", key, value, key, allowed[0])
		}
		switch key {
		case "id":
			if value == "" || slices.Contains([]byte(value), '#') {
				return nil, fmt.Errorf("@id(%q): want a name without #", value)
			}
			p.id = cedargo.PolicyID(value)
		case "message":
			p.message = string(value)
		case "hint":
			p.hint = string(value)
		case "approval":
			p.approval = true
		case "network":
			p.noNetwork = true
		}
	}
	return p, nil
}

// holds reports whether p puts an obligation on calls instead of refusing them.
func (p *policy) holds() bool {
	return p.src.Effect() == cedargo.Forbid && (p.approval || p.noNetwork)
}

// oblige adds what p demands to the verdict of a call that it matched.
func (p *policy) oblige(v *gateway.Verdict) {
	if p.approval {
		v.Approval = true
		v.ApprovalBy = append(v.ApprovalBy, string(p.id))
		if p.message != "" {
			v.Reasons = append(v.Reasons, p.reason())
		}
	}
	v.NoNetwork = v.NoNetwork || p.noNetwork
}

// reason tells the agent why p refuses or holds.
func (p *policy) reason() string {
	s := p.message
	if s == "" {
		s = fmt.Sprintf("policy %q forbids this", p.id)
	}
	if p.hint != "" {
		s += " (hint: " + p.hint + ")"
	}
	return s
}
