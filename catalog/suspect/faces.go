package suspect

import "sallyport.dev/sallyport/redact/lookalike"

// Faces tell which names pass for one another in print. The zero value knows none.
type Faces struct{ by map[string][]face }

type face struct{ server, name string }

// Add makes the name of a server's tool known.
func (f *Faces) Add(server, name string) {
	if f.by == nil {
		f.by = map[string][]face{}
	}
	print := lookalike.Print(name)
	f.by[print] = append(f.by[print], face{server, name})
}

// Passes finds a tool that is known already, for which one of this name passes:
// ok is false if there is none. Equal names on two servers are common, and no
// disguise.
func (f *Faces) Passes(name string) (server, other string, ok bool) {
	for _, x := range f.by[lookalike.Print(name)] {
		if lookalike.Passes(name, x.name) {
			return x.server, x.name, true
		}
	}
	return "", "", false
}
