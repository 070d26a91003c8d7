package config

import (
	_ "embed"
	"strconv"
	"strings"
)

// starter is the file that init writes.
//
//go:embed starter.yaml
var starter string

// Starter returns a commented sallyport.yaml for a store. It works as it is, and with
// the store of Default says the same as Default.
func Starter(store string) string {
	if store == Default().Store {
		return starter
	}
	before, after, _ := strings.Cut(starter, "# store: ")
	_, after, _ = strings.Cut(after, "\n")
	return before + "store: " + strconv.Quote(store) + "\n" + after
}
