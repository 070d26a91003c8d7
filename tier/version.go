package tier

import "debug/buildinfo"

// VersionIn is the version of a module in a Go program, from the program itself;
// "unknown" if it does not tell.
func VersionIn(program, module string) string {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "unknown"
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return d.Version
		}
	}
	return "unknown"
}
