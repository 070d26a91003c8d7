package sallyport

import (
	"fmt"
	"slices"
	"strings"
)

// A Demand is what a ticket needs before it counts as approved.
type Demand struct {
	Policy string   `json:"policy"`           // id of the policy that demands it
	Groups []string `json:"groups,omitempty"` // approvers must be in one of them; none means any admin
	Quorum int      `json:"quorum,omitempty"` // how many different approvers; 0 means 1
}

// DemandCritical names what the gateway demands for a critical call of which no
// policy demands anything.
const DemandCritical = "built-in: risk is critical"

// MaxQuorum bounds how many approvers one demand may want.
const MaxQuorum = 20

// Asks is the demand's quorum: at least one.
func (d Demand) Asks() int { return max(1, d.Quorum) }

// Admits reports whether an admin in the given groups may speak to the demand.
func (d Demand) Admits(groups []string) bool {
	return len(d.Groups) == 0 || slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(d.Groups, g) })
}

// String says what is asked for: "2 of finance, security (policy pay)".
func (d Demand) String() string {
	from := "any admin"
	if len(d.Groups) > 0 {
		from = strings.Join(d.Groups, ", ")
	}
	return fmt.Sprintf("%d of %s (%s)", d.Asks(), from, d.Policy)
}

// Unmet returns the demands that the approving votes do not meet, nil if all
// are met. No demands at all still want one word of any admin.
//
// Each admin counts once. Demands on the same groups ask the same people, so
// the largest quorum of them holds. Demands on different groups are there to be
// met by different people: nobody counts for two of them. A demand on any admin
// is met by whoever approved.
func Unmet(demands []Demand, votes []Vote) []Demand {
	unmet, _ := weigh(demands, votes)
	return unmet
}

// Helps reports whether one more approving vote brings the demands nearer.
func Helps(demands []Demand, votes []Vote, more Vote) bool {
	_, before := weigh(demands, votes)
	_, after := weigh(demands, append(slices.Clone(votes), more))
	return after < before
}

// weigh also tells how many words are missing in all.
func weigh(demands []Demand, votes []Vote) (unmet []Demand, missing int) {
	approvers := make([]Vote, 0, len(votes))
	for _, v := range votes {
		if v.Approve && !slices.ContainsFunc(approvers, func(o Vote) bool { return o.By == v.By }) {
			approvers = append(approvers, v)
		}
	}
	if len(demands) == 0 {
		demands = []Demand{{Policy: "built-in"}}
	}
	seats := seating{voters: approvers, holds: make([]int, len(approvers))}
	for _, d := range merged(demands) {
		if n := seats.fill(d); n > 0 {
			unmet, missing = append(unmet, d), missing+n
		}
	}
	return unmet, missing
}

// merged puts demands on the same groups into one. Those on fewer groups come
// first, so that it does not depend on the order of policies what is unmet.
func merged(demands []Demand) []Demand {
	var out []Demand
	for _, d := range demands {
		d.Groups = slices.Compact(slices.Sorted(slices.Values(d.Groups)))
		i := slices.IndexFunc(out, func(o Demand) bool { return slices.Equal(o.Groups, d.Groups) })
		switch {
		case i < 0:
			out = append(out, d)
		case d.Asks() > out[i].Asks():
			out[i] = d
		}
	}
	slices.SortStableFunc(out, func(a, b Demand) int {
		if len(a.Groups) != len(b.Groups) {
			return len(a.Groups) - len(b.Groups)
		}
		return slices.Compare(a.Groups, b.Groups)
	})
	return out
}

// A seating gives voters to demands on groups, each voter to one at most.
type seating struct {
	voters []Vote
	taken  []Demand // one for each seat that is filled
	holds  []int    // by voter: 1 + the seat it fills, 0 for none
}

// fill seats as many voters as d asks for, moving others where need be, and
// returns how many are missing.
func (s *seating) fill(d Demand) (missing int) {
	if len(d.Groups) == 0 {
		return max(0, d.Asks()-len(s.voters))
	}
	for range d.Asks() {
		s.taken = append(s.taken, d)
		if !s.seat(len(s.taken)-1, make([]bool, len(s.voters))) {
			missing++
		}
	}
	return missing
}

// seat finds a voter for a seat. tried holds the voters looked at already.
func (s *seating) seat(n int, tried []bool) bool {
	for i, v := range s.voters {
		if tried[i] || !s.taken[n].Admits(v.Groups) {
			continue
		}
		tried[i] = true
		if s.holds[i] == 0 || s.seat(s.holds[i]-1, tried) {
			s.holds[i] = n + 1
			return true
		}
	}
	return false
}

// Widened are the demands with the groups that an escalation has called in.
func (t Ticket) Widened(demands []Demand) []Demand {
	if len(t.EscalatedTo) == 0 {
		return demands
	}
	out := slices.Clone(demands)
	for i, d := range out {
		if len(d.Groups) > 0 {
			out[i].Groups = slices.Concat(d.Groups, t.EscalatedTo)
		}
	}
	return out
}

// Covered reports whether humans who met the demands asked were asked for all
// that is demanded now: each policy of now was among them, asked no fewer, and
// let nobody speak whom it would not let speak now. What the gateway itself
// demands of a call whatever policies say, one word of any admin, is covered by
// any of them.
func Covered(asked, now []Demand) bool {
	return !slices.ContainsFunc(now, func(d Demand) bool {
		return !slices.ContainsFunc(asked, func(a Demand) bool {
			if d.Policy == DemandCritical {
				return d.Asks() == 1 && len(d.Groups) == 0
			}
			return a.Policy == d.Policy && a.Asks() >= d.Asks() && within(a.Groups, d.Groups)
		})
	})
}

// within reports whether whoever is admitted by the groups a is admitted by b.
func within(a, b []string) bool {
	return len(b) == 0 || len(a) > 0 && !slices.ContainsFunc(a, func(g string) bool { return !slices.Contains(b, g) })
}

// VotesToday are a ticket's votes as far as they count now: of those who are
// still admins, for the groups that they were in and still are in. gone names
// those whose word has lost weight.
func (t Ticket) VotesToday(admins []Admin) (votes []Vote, gone []string) {
	for _, v := range t.Votes {
		i := slices.IndexFunc(admins, func(a Admin) bool { return a.Name == v.By && a.Tenant == t.Binding.Tenant })
		if i < 0 {
			gone = append(gone, v.By)
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(v.Groups), func(g string) bool { return !slices.Contains(admins[i].Groups, g) })
		if len(kept) < len(v.Groups) {
			gone = append(gone, v.By)
		}
		v.Groups = kept
		votes = append(votes, v)
	}
	return votes, gone
}

// StandsBehind reports whether an admin is who the call is made for, or who
// got the agent its token: nobody decides on a call of their own.
func (t Ticket) StandsBehind(admin string) bool {
	same := func(a string) bool {
		return a != "" && strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(admin))
	}
	return same(t.Actor) || same(t.Binding.OnBehalfOf)
}

// NoMore reports whether nothing is demanded now that was not before, by whatever
// policy.
func NoMore(now, before []Demand) bool {
	for _, d := range now {
		if !slices.ContainsFunc(before, func(o Demand) bool { return o.Asks() >= d.Asks() && slices.Equal(o.Groups, d.Groups) }) {
			return false
		}
	}
	return true
}
