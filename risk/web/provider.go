package web

import (
	_ "embed"
	"path"
	"slices"
	"strings"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

//go:embed providers.txt
var providersText string

// A rule is one line of providers.txt.
type rule struct {
	host    string
	methods []string // nil means any; ["!"] any that is not safe
	path    []string
	lost    bool
	level   sallyport.Level
	effect  string
	reason  string
}

// A rulebook has the rules by host. Rules for every host are under "*".
type rulebook map[string][]rule

var providers = sync.OnceValue(func() rulebook { return parseRules(providersText) })

func parseRules(text string) rulebook {
	book := rulebook{}
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 6 || strings.HasPrefix(line, "#") {
			continue
		}
		r := rule{host: strings.TrimPrefix(fields[0], "*."), path: split(fields[2]), effect: fields[4], reason: strings.Join(fields[5:], " ")}
		if fields[1] != "*" {
			r.methods = strings.Split(fields[1], "|")
		}
		if r.lost = fields[3] == "irreversible"; r.lost {
			r.level = sallyport.Critical
		} else if err := r.level.UnmarshalText([]byte(fields[3])); err != nil {
			r.level = sallyport.Critical // a test reads every line
		}
		book[fields[0]] = append(book[fields[0]], r)
	}
	return book
}

func split(p string) []string { return strings.Split(strings.Trim(p, "/"), "/") }

// service judges what a request does at a service that is known.
func service(l *finding.List, method, host, rawPath string) {
	book := providers()
	parts := split(path.Clean("/" + rawPath))
	try := func(rules []rule) {
		for _, r := range rules {
			if r.takes(method) && match(r.path, parts) {
				r.tell(l)
			}
		}
	}
	try(book["*"])
	try(book[host])
	for rest := host; rest != ""; {
		try(book["*."+rest])
		_, after, ok := strings.Cut(rest, ".")
		if !ok {
			break
		}
		rest = after
	}
}

func (r rule) takes(method string) bool {
	if r.methods == nil {
		return true
	}
	method = strings.ToUpper(method)
	if r.methods[0] == "!" {
		return !safe(method)
	}
	return slices.Contains(r.methods, method)
}

func (r rule) tell(l *finding.List) {
	l.Effect(r.effect)
	if r.lost {
		l.Lost("%s: it cannot be undone", r.reason)
	} else {
		l.Add(r.level, "%s", r.reason)
	}
}

func safe(method string) bool {
	return method == "GET" || method == "HEAD" || method == "OPTIONS"
}

// match compares segments. "**" takes any number of them.
func match(pattern, parts []string) bool {
	if len(pattern) == 0 {
		return len(parts) == 0
	}
	if pattern[0] == "**" {
		for i := 0; i <= len(parts); i++ {
			if match(pattern[1:], parts[i:]) {
				return true
			}
		}
		return false
	}
	if len(parts) == 0 {
		return false
	}
	ok, err := path.Match(pattern[0], parts[0])
	return err == nil && ok && match(pattern[1:], parts[1:])
}
