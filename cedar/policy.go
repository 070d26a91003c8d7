package cedar

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	cedargo "github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
)

// A policy is one compiled policy with its annotations.
type policy struct {
	id        cedargo.PolicyID
	src       *cedargo.Policy
	approval  bool
	approvers []string // groups, none for any admin
	quorum    int      // 0 means 1
	noNetwork bool
	message   string
	hint      string
	args      bool // its conditions read the arguments
}

// annotations lists what each annotation may say; nil means any text. An
// unknown one is refused: a misspelt @approval must not vanish.
var annotations = map[types.AnnotationKey][]types.String{
	"id": nil, "message": nil, "hint": nil, "description": nil,
	"approval": {"required"}, "network": {"none"}, "approvers": nil, "quorum": nil,
}

// newPolicy reads the annotations of src. defaultID is used without an @id.
func newPolicy(src *cedargo.Policy, defaultID string) (*policy, error) {
	p := &policy{id: cedargo.PolicyID(defaultID), src: src}
	var err error
	for key, value := range src.Annotations() {
		allowed, known := annotations[key]
		if !known {
			return nil, fmt.Errorf("unknown annotation @%s: want @id, @message, @hint, @description, @approval, @approvers, @quorum or @network", key)
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
		case "approvers":
			if p.approvers, err = groups(string(value)); err != nil {
				return nil, err
			}
		case "quorum":
			if p.quorum, err = quorum(string(value)); err != nil {
				return nil, err
			}
		case "network":
			p.noNetwork = true
		}
	}
	if !p.approval && (p.approvers != nil || p.quorum != 0) {
		return nil, errors.New(`@approvers and @quorum say who approves: they need @approval("required") beside them`)
	}
	return p, nil
}

var groupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// groups reads the names of groups, with commas between them.
func groups(value string) ([]string, error) {
	var out []string
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if !groupName.MatchString(name) {
			return nil, fmt.Errorf("@approvers(%q): want names of groups with commas between them, such as @approvers(\"finance,security\")", value)
		}
		if slices.Contains(out, name) {
			return nil, fmt.Errorf("@approvers(%q): %s is there twice", value, name)
		}
		out = append(out, name)
	}
	return out, nil
}

func quorum(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > sallyport.MaxQuorum || strconv.Itoa(n) != value {
		return 0, fmt.Errorf("@quorum(%q): want a number from 1 to %d, such as @quorum(\"2\")", value, sallyport.MaxQuorum)
	}
	return n, nil
}

// holds reports whether p puts an obligation on calls instead of refusing them.
func (p *policy) holds() bool {
	return p.src.Effect() == cedargo.Forbid && (p.approval || p.noNetwork)
}

// oblige adds what p demands to the verdict of a call that it matched.
func (p *policy) oblige(v *gateway.Verdict) {
	if p.approval {
		v.Demands = append(v.Demands, sallyport.Demand{Policy: string(p.id), Groups: p.approvers, Quorum: p.quorum})
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
