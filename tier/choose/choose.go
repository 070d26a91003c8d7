// Package choose decides in which tier a call runs: by what its tool's manifest
// says, what the call asks for, and what hosts can run. It is pure. No choice is
// weaker than what trust demands, and what cannot be had leads up or nowhere,
// never down.
package choose

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// Auto leaves the choice to the table, in the place of a tier.
const Auto = "auto"

// GPU is what hosts are asked about beside tiers.
const GPU = "gpu"

// A Need is all that the choice depends on, beside hosts.
type Need struct {
	Trust    string        // of the manifest: "untrusted", "agent", "light"; "" is "agent", and "light" for a WASI module
	Language string        // "python", "javascript", "shell", "wasm", or another that a program of an image speaks
	Tiers    []string      // that the tool allows, what it wants first; none: what trust demands, and no other
	Fixed    string        // by the manifest, "" or Auto for none
	Asked    string        // by the caller, one of Tiers; "" or Auto for none
	Timeout  time.Duration // that it may take; 0 is short

	GPU, Session, Files, Image, Calls, Reach, Env bool // what it needs; Calls: it calls tools; Reach: it may reach hosts; Env: it is given variables
}

// A Choice is a tier, and why it is that one, in words.
type Choice struct {
	Tier   string
	Reason string
}

// long is more than what a tier for short work takes.
var long = sallyport.DefaultLimits().Timeout

// For chooses. lack says why no sandbox of a tier, or no GPU, can be had now, or
// nil; it is only asked about tiers that would do. A nil lack means that all can be had.
//
// With an error, Choice is what would have been chosen, as far as there is one:
// code Invalid where no host could do it, Unavailable, of no step, where this one
// cannot.
func For(n Need, lack func(tier string) error) (Choice, error) {
	if n.Trust == "" && n.Language == "wasm" {
		n.Trust = "light" // it has no files and no network anywhere
	}
	if lack == nil {
		lack = func(string) error { return nil }
	}
	if n.Asked != "" && n.Asked != Auto {
		return n.asked(lack)
	}
	first, err := n.first()
	if err != nil {
		return first, err
	}
	why := lack(first.Tier)
	if why == nil && n.GPU {
		why = lack(GPU) // and no other tier has one
	}
	if why == nil {
		return first, nil
	}
	for _, up := range n.stronger(first.Tier) {
		if lack(up) == nil {
			return Choice{up, fmt.Sprintf("%s; %s cannot run here (%s), and the tool allows %s, which is stronger", first.Reason, first.Tier, said(why), up)}, nil
		}
	}
	return first, unavailable(first, why, n.upwards(first.Tier))
}

// asked is what the caller names: that, or nothing.
func (n Need) asked(lack func(string) error) (Choice, error) {
	c := Choice{n.Asked, "the caller asked for it"}
	switch {
	case !slices.Contains(n.Tiers, n.Asked):
		return c, invalid("leave tier out, or use one of: "+strings.Join(append([]string{Auto}, n.Tiers...), ", "), "tier %.40q is none that the tool allows", n.Asked)
	case n.Trust == "untrusted" && weaker(n.Asked, sallyport.TierMicroVM):
		return c, invalid("leave tier out", "tier %s is weaker than microvm, which trust untrusted demands", n.Asked)
	}
	if no := unable(n.Asked, n); no != "" {
		return c, invalid(n.elsewhere(), "tier %s: %s", n.Asked, no)
	}
	if why := lack(n.Asked); why != nil {
		return c, unavailable(c, why, "or leave tier out: the gateway then chooses one that can run here, as far as the tool allows")
	}
	return c, nil
}

// elsewhere says where a need can be met, for a hint.
func (n Need) elsewhere() string {
	able := slices.DeleteFunc(slices.Clone(n.Tiers), func(t string) bool { return unable(t, n) != "" })
	if len(able) == 0 {
		return "ask for less: no tier of this tool can do that"
	}
	return "leave tier out, or use " + strings.Join(able, " or ")
}

// first is the tier that the tool gets where all can be had.
func (n Need) first() (Choice, error) {
	floor, why := n.demanded()
	c := Choice{floor, why}
	if n.Fixed != "" && n.Fixed != Auto {
		c = Choice{n.Fixed, "the manifest says tier: " + n.Fixed}
		if weaker(n.Fixed, floor) {
			return c, invalid("say tier: "+floor+", or leave it out", "tier %s is weaker than %s: %s", n.Fixed, floor, why)
		}
		if no := unable(n.Fixed, n); no != "" {
			return c, invalid("say tier: auto, or leave out what it cannot do", "tier %s: %s", n.Fixed, no)
		}
		return c, nil
	}
	if len(n.Tiers) == 0 {
		if no := unable(floor, n); no != "" {
			return c, invalid("change the tool's trust, or leave out what it cannot do", "%s: %s", why, no)
		}
		return c, nil
	}
	var no []string
	for _, t := range n.Tiers {
		switch cannot := unable(t, n); {
		case weaker(t, floor):
			no = append(no, t+" is weaker")
		case cannot != "":
			no = append(no, cannot)
		case t == floor:
			return c, nil
		default:
			return Choice{t, fmt.Sprintf("%s; %s stands first in the tool's tiers", why, t)}, nil
		}
	}
	return c, invalid("add "+floor+" to the tool's tiers, or change its trust", "no tier of the tool's will do: %s; %s", why, strings.Join(no, "; "))
}

// demanded is the weakest tier that trust and the need let be, by the table of
// the design.
func (n Need) demanded() (tier, why string) {
	trust := cmp.Or(n.Trust, "agent")
	switch {
	case trust == "untrusted":
		return sallyport.TierMicroVM, "trust untrusted demands microvm"
	case n.GPU:
		return sallyport.TierGVisor, "gpu demands gvisor"
	case n.Session:
		return sallyport.TierGVisor, "sessions are kept in gvisor, unless a call names microvm"
	case n.Calls:
		return sallyport.TierGVisor, "a program that calls tools runs in gvisor"
	case trust != "light":
		return sallyport.TierGVisor, "trust agent demands gvisor"
	case n.Language == "wasm":
		return sallyport.TierWasm, "trust light, and it is a WASI module"
	case n.Language != "javascript":
		return sallyport.TierGVisor, "trust light, but only JavaScript and WASI modules have a lighter tier than gvisor"
	}
	if no := unable(sallyport.TierIsolate, n); no != "" {
		return sallyport.TierGVisor, "trust light, but " + no
	}
	return sallyport.TierIsolate, "trust light, and it is JavaScript"
}

// stronger are the tiers above one that would do, from the weakest on.
func (n Need) stronger(than string) []string {
	var up []string
	for _, t := range n.Tiers {
		if weaker(than, t) && unable(t, n) == "" {
			up = append(up, t)
		}
	}
	slices.SortStableFunc(up, func(a, b string) int { return strength[a] - strength[b] })
	return up
}

// upwards is what else an operator can do about a tier that is lacking.
func (n Need) upwards(from string) string {
	if len(n.stronger(from)) > 0 {
		return "the stronger tiers that the tool allows cannot run here either"
	}
	for _, t := range []string{sallyport.TierGVisor, sallyport.TierMicroVM} {
		if weaker(from, t) && unable(t, n) == "" {
			return fmt.Sprintf("or add %s, which is stronger, to the tool's tiers: it is never run in a weaker one", t)
		}
	}
	return "it is never run in a weaker one"
}

// Impossible is the error of a choice where no host could do what is needed, nil
// where only this one cannot.
func Impossible(err error) error {
	if sallyport.CodeOf(err) == sallyport.Unavailable {
		return nil
	}
	return err
}

func invalid(hint, format string, args ...any) error {
	return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Authorize, Message: fmt.Sprintf(format, args...), Hint: hint, Err: sallyport.ErrNotExecuted}
}

func unavailable(c Choice, why error, more string) error {
	e := &sallyport.Error{
		Code: sallyport.Unavailable, Hint: more, Err: sallyport.ErrNotExecuted,
		Message: fmt.Sprintf("tier %s cannot run here: %s (%s)", c.Tier, said(why), c.Reason),
	}
	if cause, ok := errors.AsType[*sallyport.Error](why); ok {
		e.Hint, e.RetryAfter = strings.TrimPrefix(cause.Hint+"; "+more, "; "), cause.RetryAfter
	}
	return e
}

func said(err error) string {
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
