// Package lacks says what a list does not show.
package lacks

import (
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// Marks are members of a list's _meta: that a server would add to it that is not
// there yet, and which of the servers whose things it has take no calls just now.
// down names those, and may be nil.
func Marks(sight sallyport.Sight, down func() []string) string {
	var marks, names []string
	if sight.Incomplete {
		marks = append(marks, `"`+wire.MetaIncomplete+`":true`)
	}
	if down != nil {
		for _, name := range down() {
			if slices.ContainsFunc(sight.List, func(t sallyport.Tool) bool { return t.Origin.Server == name }) {
				names = append(names, string(wire.Quote(name)))
			}
		}
	}
	if names != nil {
		marks = append(marks, `"`+wire.MetaUnavailable+`":[`+strings.Join(names, ",")+"]")
	}
	return strings.Join(marks, ",")
}
