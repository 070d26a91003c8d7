package choose

import "sallyport.dev/sallyport"

// strength orders tiers by how much stands between a program and the host: a
// runtime's own walls, a kernel in user space, a machine.
var strength = map[string]int{
	sallyport.TierWasm: 1, sallyport.TierIsolate: 1, sallyport.TierGVisor: 2, sallyport.TierMicroVM: 3,
}

func weaker(a, b string) bool { return strength[a] < strength[b] }

// An ability is what one tier can do.
type ability struct {
	language string // the only one, "" for any that a program of an image speaks
	only     string // said of others

	gpu, session, files, image, calls, reach, env, long bool
}

var abilities = map[string]ability{
	sallyport.TierMicroVM: {
		only:    "microvm runs programs of an image",
		session: true, files: true, image: true, reach: true, env: true, long: true,
	},
	sallyport.TierGVisor: {
		only: "gvisor runs programs of an image",
		gpu:  true, session: true, files: true, image: true, calls: true, reach: true, env: true, long: true,
	},
	sallyport.TierIsolate: {language: "javascript", only: "isolate runs JavaScript only", files: true, reach: true, env: true},
	sallyport.TierWasm:    {language: "wasm", only: "wasm runs WASI modules only", files: true, env: true, long: true},
}

// unable says what of a need a tier cannot do, "" if it can do all.
func unable(tier string, n Need) string {
	can, known := abilities[tier]
	switch {
	case !known:
		return "there is no tier of that name"
	case can.language != n.Language && (can.language != "" || n.Language == "wasm"):
		return can.only
	case n.GPU && !can.gpu:
		return tier + " has no GPU"
	case n.Session && !can.session:
		return tier + " keeps no sessions"
	case n.Files && !can.files:
		return tier + " takes no files"
	case n.Image && !can.image:
		return tier + " has no images"
	case n.Calls && !can.calls:
		return tier + " lets no program call tools"
	case n.Reach && !can.reach:
		return tier + " has no way to other hosts"
	case n.Env && !can.env:
		return tier + " has no environment for secrets"
	case n.Timeout > long && !can.long:
		return tier + " takes short work only, up to " + long.String()
	}
	return ""
}
