package whole

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/secret"
)

// Keys looks at the folder of keys: each can be used, and nobody but its owner may
// read any.
func Keys(dir string) (string, error) {
	_, wrong := audit.LoadKey(dir)
	if wrong == nil {
		_, wrong = oauth.LoadKeys(dir)
	}
	if wrong == nil {
		_, wrong = secret.OpenRows(dir)
	}
	if wrong != nil {
		return "", wrong
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return "", err
		}
		private := slices.Contains([]string{".key", ".pem"}, filepath.Ext(e.Name()))
		if path := filepath.Join(dir, e.Name()); info.Mode().Perm()&0o022 != 0 || private && info.Mode().Perm()&0o077 != 0 {
			return "", &sallyport.Error{Message: fmt.Sprintf("%s is not its owner's alone (%s)", path, info.Mode()), Hint: "chmod 600 it, and find out who could read or change it"}
		}
	}
	return fmt.Sprintf("%s, files: %d, each can be used and is its owner's alone", dir, len(entries)), nil
}

// A standing is what the record says of an agent.
type standing struct {
	state string
	roles []string
	told  bool // the record has its roles
}

// states are what becomes of an agent by each change.
var states = map[string]string{"agents add": "active", "agents suspend": "suspended", "agents resume": "active", "agents revoke": "revoked"}

// Agents holds the rows of agents against the record of who added and changed them.
func Agents(ctx context.Context, a *cli.App, tenant string) (string, error) {
	db, err := a.ReadStore(ctx)
	if err != nil {
		return "", err
	}
	defer db.Close()
	rows, err := audit.Search(ctx, db, audit.Filter{Tenant: tenant, Kind: sallyport.EntryAdmin, Text: `"action":"agents `}, audit.MaxSearch)
	if err != nil {
		return "", err
	}
	if len(rows) == audit.MaxSearch {
		return fmt.Sprintf("not looked at: the record has more than %d changes of agents", len(rows)), nil
	}
	slices.Reverse(rows) // the oldest first
	agents, err := db.Agents(ctx, tenant)
	if err != nil {
		return "", err
	}
	if wrong := differ(agents, standings(rows)); len(wrong) > 0 {
		return "", &sallyport.Error{
			Message: "agents that are not what the record says: " + strings.Join(wrong, "; "),
			Hint:    "somebody wrote to the database, or entries were erased: `sallyport audit search --kind admin --text agents`",
		}
	}
	return fmt.Sprintf("agents: %d, each as the record says", len(agents)), nil
}

func standings(rows []audit.Row) map[string]standing {
	said := map[string]standing{}
	for _, r := range rows {
		var c struct {
			sallyport.Change
			Detail struct {
				Roles []string `json:"roles"`
				State string   `json:"state"`
			} `json:"detail"`
		}
		if json.Unmarshal(r.Payload, &c) != nil {
			continue // erased
		}
		s := said[c.Target]
		s.state = cmp.Or(c.Detail.State, states[c.Action], s.state)
		if c.Action == "agents declare" || c.Action == "agents add" && c.Detail.Roles != nil {
			s.roles, s.told = slices.Compact(slices.Sorted(slices.Values(c.Detail.Roles))), true
		}
		said[c.Target] = s
	}
	return said
}

func differ(agents []sallyport.Agent, said map[string]standing) (wrong []string) {
	for _, a := range agents {
		s, known := said[a.ID]
		roles := slices.Sorted(slices.Values(a.Roles))
		switch {
		case !known:
			wrong = append(wrong, a.ID+" was never added")
		case s.state != a.State:
			wrong = append(wrong, fmt.Sprintf("%s is %s, and by the record %s", a.ID, a.State, s.state))
		case s.told && !slices.Equal(roles, s.roles):
			wrong = append(wrong, fmt.Sprintf("%s has the roles %v, and by the record %v", a.ID, roles, s.roles))
		}
	}
	return wrong
}
