package cloud

import "strings"

// Verbs lists every verb of verbs.txt as it stands there, with its program.
func Verbs() (out []string) {
	for line := range strings.SplitSeq(verbsText, "\n") {
		head, list, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		program, _, _ := strings.Cut(head, " ")
		for _, w := range strings.Fields(list) {
			out = append(out, program+" "+w)
		}
	}
	return out
}
