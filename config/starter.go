package config

import _ "embed"

// starter is the file that init writes.
//
//go:embed starter.yaml
var starter string

// Starter returns a commented sallyport.yaml. It works as it is and says the
// same as Default.
func Starter() string { return starter }
