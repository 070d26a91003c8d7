package desk

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream"
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

// trouble is why a server is not well, for whoever looks at servers: it is about
// no call. Where its arguments name what its sandbox does not show, it says so.
func trouble(s upstream.Status, c config.Server) string {
	why := strings.TrimSuffix(s.Error, " ("+outcome.MayHaveActed+")")
	if path := unseen(c); path != "" && why != "" && s.State != upstream.StateReady {
		why += fmt.Sprintf("; its sandbox shows it no %s of this host: `servers add --root FOLDER` (in the configuration: roots) shows it a folder", path)
	}
	return why
}

// unseen is the first path in a server's arguments that is in none of its roots,
// nor where its image or its own folder has something.
func unseen(c config.Server) string {
	if c.Isolation != config.IsolationGVisor {
		return ""
	}
	shown := []string{"/home/agent", "/usr", "/bin", "/lib", "/dev"}
	for _, r := range c.Roots {
		shown = append(shown, r.Path)
	}
	for _, arg := range c.Args {
		if strings.HasPrefix(arg, "-") {
			_, arg, _ = strings.Cut(arg, "=")
		}
		if filepath.IsAbs(arg) && !strings.Contains(arg, "\n") && !slices.ContainsFunc(shown, func(in string) bool { return within(in, arg) }) {
			return arg
		}
	}
	return ""
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
