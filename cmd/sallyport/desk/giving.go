package desk

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"

	"sallyport.dev/sallyport/backend/upstream/given"
	"sallyport.dev/sallyport/config"
)

// give reads what a server is given, with the stored secrets in it, and names those.
func (d *Servers) give(ctx context.Context, s config.Server) (v given.Values, used []string, err error) {
	resolve := func(text string) string {
		used = append(used, config.References(text)...)
		plain, wrong := d.Resolve(ctx, text)
		err = cmp.Or(err, wrong)
		return plain
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		v.Env = append(v.Env, k+"="+resolve(s.Env[k]))
	}
	v.Header = http.Header{}
	for k, text := range s.Headers {
		v.Header.Set(k, resolve(text))
	}
	if s.Isolation == config.IsolationGVisor {
		v.Inject = s.Confinement().Inject
		for i := range v.Inject {
			v.Inject[i].Value = []byte(resolve("${secret:" + v.Inject[i].Name + "}"))
		}
	}
	return v, used, err
}
