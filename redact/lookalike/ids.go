package lookalike

// Taken finds, among names that are there, one that a new name can be taken for,
// "" if there is none. The same name is not another.
func Taken(name string, among []string) string {
	skeleton := Skeleton(name)
	for _, other := range among {
		if other != name && Skeleton(other) == skeleton {
			return other
		}
	}
	return ""
}
