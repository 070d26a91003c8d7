// Package trust says whose words a result is made of, and what their reader may
// do without a human.
package trust

import (
	"slices"

	"sallyport.dev/sallyport"
)

// FlagInstructions is the finding of a Sanitiser for a text that seems to speak
// to the model.
const FlagInstructions = "flag: instruction-like text"

// Doubt says why a result is not to be trusted, "" if it is. What search_tools
// finds is definitions, which speak to the model by their nature: they are judged
// where they are pinned, and whoever reads them in a list is not tainted either.
func Doubt(tool sallyport.Tool, findings []string) string {
	switch {
	case tool.Manifest.Untrusted:
		return "the tool returns what strangers write"
	case slices.Contains(findings, FlagInstructions) && !searches(tool.Origin):
		return "the result holds text that seems to instruct the model"
	}
	return ""
}

func searches(o sallyport.Origin) bool {
	return o.Backend == "builtin" && o.Server == "" && o.Name == sallyport.SearchTools
}

// Wary tells whether a tainted caller needs a human for a call of this risk: for
// everything that changes more than data which is there to be changed.
func Wary(r sallyport.Risk) bool {
	if !r.Mutating() {
		return false
	}
	for _, e := range r.Effects {
		if e != sallyport.EffectRead && e != sallyport.EffectWrite {
			return true
		}
	}
	return len(r.Effects) == 0 // what it does is not known
}
