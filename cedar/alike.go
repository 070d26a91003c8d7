package cedar

import (
	"regexp"
	"slices"
	"strconv"

	cedargo "github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/redact/lookalike"
)

// A rule that allows means one name, byte for byte. A rule that forbids, or holds
// for a human, means every name that a reader would take for it: else a server
// could offer send_maiI beside send_mail. So what such rules name is kept by what
// is left of it for who reads in haste, and a thing whose name comes to the same is
// also asked about as if that were its name.

// likes are the names that forbids speak of, by their skeletons.
type likes map[string][]string

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// take notes every text in a policy that forbids or holds. That some are no names
// does no harm: then nothing has such a name.
func (l likes) take(p *policy) {
	if p.src.Effect() != cedargo.Forbid {
		return
	}
	for _, q := range quoted.FindAll(p.src.MarshalCedar(), -1) {
		name, err := strconv.Unquote(string(q))
		if err != nil || name == "" || len(name) > 128 {
			continue
		}
		if s := lookalike.Skeleton(name); s != "" && !slices.Contains(l[s], name) {
			l[s] = append(l[s], name)
		}
	}
}

// alike holds a question against the forbids that name something which the tool's
// name can be taken for.
func (s *set) alike(e *Engine, q gateway.Question, ents entities, act action, ctx types.Record, v gateway.Verdict) gateway.Verdict {
	for _, name := range s.likes[ents.skeleton] {
		if name == q.Tool.Name || !v.Allow {
			continue
		}
		q.Tool.Name = name
		other, err := e.entities.of(q)
		if err != nil {
			return gateway.Verdict{Reasons: []string{"the question could not be put to the policies"}}
		}
		found := s.index.find(other, act)
		req := cedargo.Request{Principal: other.principal.UID, Action: act.uid, Resource: other.resource.UID, Context: ctx}
		if found.args {
			if ctx, err := e.contexts.of(q, true); err == nil {
				req.Context = ctx
			}
		}
		if decision, diag := cedargo.Authorize(found.rules, other, req); len(diag.Errors) > 0 {
			return s.broken(diag.Errors)
		} else if decision != cedargo.Allow && len(diag.Reasons) > 0 {
			v = s.refused(diag.Reasons)
			v.Reasons = append([]string{"its name can be taken for " + name}, v.Reasons...)
			return v
		}
		if found.holds.empty() {
			continue
		}
		_, diag := cedargo.Authorize(found.holds, other, req)
		if len(diag.Errors) > 0 {
			return s.broken(diag.Errors)
		}
		for _, r := range diag.Reasons {
			if id := string(r.PolicyID); !slices.Contains(v.Policies, id) {
				v.Policies = append(v.Policies, id)
				s.byID[r.PolicyID].oblige(&v)
			}
		}
	}
	return v
}
