package whole

import (
	"cmp"
	"context"
	"fmt"

	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/cli"
)

// Servers says which servers do not serve, and why.
func Servers(ctx context.Context, a *cli.App) (all []Finding) {
	var out struct {
		Servers []adminapi.ServerStatus `json:"servers"`
	}
	if err := a.API(ctx, "GET", "/servers", nil, &out); err != nil {
		return []Finding{{What: "servers", Said: err.Error(), Hint: "`sallyport servers list` asks again"}}
	}
	for _, s := range out.Servers {
		f := Finding{What: "server " + s.Name, Said: s.State}
		switch {
		case s.Circuit == "open" || s.Circuit == "half_open":
			f.Said, f.Hint = cmp.Or(s.Error, "circuit "+s.Circuit), "it is tried again by itself; nothing of a call that was refused has happened"
		case s.State == "down" || s.State == "refused":
			f.Said, f.Hint = s.State+": "+s.Error, "its tools stay listed, and calls of them are refused"
			if s.URL == "" {
				f.Hint += fmt.Sprintf("; `sallyport servers logs %s` shows its last words", s.Name)
			}
		case s.Error != "":
			f.Said = s.State + ", but " + s.Error
		case s.State == "starting":
			f.OK, f.Said = true, "is starting: it has not told its tools yet"
		default:
			continue
		}
		all = append(all, f)
	}
	return all
}
