//go:build !failpoints

package failpoint

// Hit marks the moment; see the package's comment.
func Hit(string) {}
