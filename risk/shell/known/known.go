// Package known is the list of programs that the shell judge knows, with the
// options that each may be given. What is not in programs.txt, program or
// option, is not known to be harmless.
package known

import (
	_ "embed"
	"strings"
	"sync"

	"sallyport.dev/sallyport/risk/shell/word"
)

// A Class is what a program does with the words that are no options.
type Class string

// The classes.
const (
	Read Class = "read" // prints what it reads from them
	Show Class = "show" // prints; they are no files
	Net  Class = "net"  // asks other machines, and prints
	High Class = "high" // changes what can be undone
	Over Class = "over" // writes over each of them
	Last Class = "last" // writes over the last one, or into it
	Lost Class = "lost" // takes away for good
	Open Class = "open" // can run programs or write files in too many ways
	Stop Class = "stop" // takes the machine down
)

// A Program is one that is known.
type Program struct {
	Class   Class
	Does    string // a short verb phrase, for people
	Options word.Options
}

// Find returns a program by its name, without folder.
func Find(name string) (Program, bool) {
	p, ok := programs()[name]
	return p, ok
}

// Lose calls yield for every program that takes something away for good.
func Lose(yield func(name string) bool) {
	for name, p := range programs() {
		if p.Class == Lost && !yield(name) {
			return
		}
	}
}

//go:embed programs.txt
var table string

var programs = sync.OnceValue(func() map[string]Program { return parse(table) })

// parse reads entries such as
//
//	last cp | copies files | -r -n^ -t>
//
// An entry goes on in lines that begin with a blank.
func parse(text string) map[string]Program {
	out := map[string]Program{}
	entry := ""
	flush := func() {
		parts := strings.SplitN(entry, "|", 3)
		for len(parts) < 3 {
			parts = append(parts, "")
		}
		names := strings.Fields(parts[0])
		for _, name := range names[min(1, len(names)):] {
			out[name] = Program{Class: Class(names[0]), Does: strings.TrimSpace(parts[1]), Options: word.ParseOptions(parts[2] + " --version --help")}
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, " "), strings.HasPrefix(line, "\t"):
			entry += line
		default:
			flush()
			entry = line + " "
		}
	}
	flush()
	return out
}
