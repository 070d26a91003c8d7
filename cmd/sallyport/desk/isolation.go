package desk

import (
	"strings"

	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/config"
)

// Unisolated names the servers that run as the gateway's own user.
func Unisolated(servers []adminapi.ServerStatus) (names []string) {
	for _, s := range servers {
		if s.Isolation == config.IsolationNone {
			names = append(names, s.Name)
		}
	}
	return names
}

// Isolated says how each server that is a program is kept apart, and what of
// this host it is shown all the same.
func Isolated(servers []adminapi.ServerStatus) map[string]string {
	out := map[string]string{}
	for _, s := range servers {
		if s.Command == "" || s.Isolation == config.IsolationNone {
			continue
		}
		out[s.Name] = "isolation " + s.Isolation
		if s.Isolation == config.IsolationGVisor {
			out[s.Name] += ", reaches " + anything(s.Reaches) + ", sees " + anything(s.Sees)
		}
	}
	return out
}

func anything(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}
