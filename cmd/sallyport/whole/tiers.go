package whole

import (
	"context"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/cli"
)

// strongestFirst are the tiers by what stands between a program and the host.
var strongestFirst = []string{sallyport.TierMicroVM, sallyport.TierGVisor, sallyport.TierIsolate, sallyport.TierWasm}

// proofs are what was seen of a tier that works.
var proofs = map[string]string{
	sallyport.TierGVisor:  "a program ran in a sandbox just now",
	sallyport.TierMicroVM: "a guest booted and ran a program",
	sallyport.TierIsolate: "a program ran in an isolate",
	sallyport.TierWasm:    "a module ran",
}

// NoTier is said where no tier works.
func NoTier() Finding {
	return Finding{What: "strongest tier", Said: "none works here: code calls are refused", Hint: "mend one of those above"}
}

// Tiers says of each tier how it was proven, or what it lacks, and which is the
// strongest that was. Only the tier that tools have where nothing is said must be
// there.
func Tiers(ctx context.Context, a *cli.App) []Finding {
	var out struct {
		Tiers []adminapi.TierInfo `json:"tiers"`
	}
	if err := a.API(ctx, "GET", "/tiers", nil, &out); err != nil {
		said, hint := cli.Said(err)
		return []Finding{{What: "tiers", Said: said, Hint: hint}}
	}
	var all []Finding
	strongest, best := NoTier(), len(strongestFirst)
	for _, t := range out.Tiers {
		f := Finding{What: t.Tier, OK: true, Said: t.Proof}
		switch {
		case t.Works && proofs[t.Tier] != "":
			f.Said = proofs[t.Tier] + " (" + t.Proof + ")"
		case !t.Works && t.Tier == sallyport.TierGVisor:
			f = Finding{What: t.Tier, Said: t.Lack, Hint: t.Hint + "; code calls are refused until this is mended: nothing runs in a weaker way"}
		case !t.Works:
			f.Lacking, f.Said, f.Hint = true, t.Lack, t.Hint
		}
		all = append(all, f)
		if i := slices.Index(strongestFirst, t.Tier); t.Works && i >= 0 && i < best {
			best, strongest = i, Finding{What: strongest.What, OK: true, Said: t.Tier}
		}
	}
	return append(all, strongest)
}
