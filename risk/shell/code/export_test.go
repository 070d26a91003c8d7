package code

// Modules calls yield for every module of Python that may be imported.
func Modules(yield func(name string) bool) {
	for name := range pyModules {
		if !yield(name) {
			return
		}
	}
}
