package catalog

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/egress"
)

// maxScale is the most decimal places that any currency has: those of ether.
const maxScale = 18

func (d document) riskField(to *[]sallyport.RiskField) setter {
	return func(n ast.Node) error {
		var f sallyport.RiskField
		err := d.object(n, "an entry of fields", fields{
			"path":       d.text(&f.Path),
			"kind":       d.oneOf(&f.Kind, sallyport.RiskKinds()...),
			"dialect":    d.oneOf(&f.Dialect, "postgres", "sqlite", "mysql"),
			"reversible": d.boolean(&f.Reversible),
			"scale":      d.count(&f.Scale),
			"effect":     d.oneOf(&f.Effect, "reads", "creates", "appends", "writes", "overwrites", "deletes"),
		})
		switch {
		case err != nil:
			return err
		case !strings.HasPrefix(f.Path, "/"):
			return d.errorf(n, "for example /sql", "path must be a JSON Pointer into the arguments, not %.60q", f.Path)
		case f.Kind == "":
			return d.errorf(n, "for example kind: sql", "an entry of fields needs a kind")
		case f.Kind == "sql" && f.Dialect == "":
			return d.errorf(n, "add dialect: postgres, sqlite or mysql", "a field of kind sql needs a dialect")
		case f.Kind != "path" && f.Effect != "":
			return d.errorf(n, "remove effect", "only a field of kind path has an effect")
		case f.Kind != "sql" && f.Dialect != "":
			return d.errorf(n, "remove dialect", "only a field of kind sql has a dialect")
		case f.Kind != "amount" && (f.Reversible || f.Scale != 0):
			return d.errorf(n, "remove reversible and scale", "only a field of kind amount has them")
		case f.Scale > maxScale:
			return d.errorf(n, "2 means that the amount is in cents", "scale must be at most %d", maxScale)
		}
		*to = append(*to, f)
		return nil
	}
}

func (d document) tier(to *[]string) setter {
	return func(n ast.Node) error {
		var tier string
		if err := d.oneOf(&tier, sallyport.Tiers()...)(n); err != nil {
			return err
		}
		if slices.Contains(*to, tier) {
			return d.errorf(n, "keep one of them", "the tier %q is there twice", tier)
		}
		*to = append(*to, tier)
		return nil
	}
}

// received is what arguments may hold though they leave the gateway.
func (d document) received(to *[]string) setter {
	return func(n ast.Node) error {
		var s string
		if err := d.oneOf(&s, "secrets")(n); err != nil {
			return err
		}
		*to = append(*to, s)
		return nil
	}
}

func (d document) host(to *[]string) setter {
	return func(n ast.Node) error {
		s, _ := textOf(n)
		if _, err := egress.ParseRules([]string{s}); err != nil {
			return d.errorf(n, "for example api.example.com:443 or *.example.com:443", "an entry of egress must be host:port: %s", err)
		}
		*to = append(*to, s)
		return nil
	}
}

func (d document) secret(to *[]sallyport.SecretGrant) setter {
	return func(n ast.Node) error {
		var s sallyport.SecretGrant
		err := d.object(n, "an entry of secrets", fields{
			"name": d.text(&s.Name), "env": d.text(&s.Env), "header": d.text(&s.Header), "prefix": d.text(&s.Prefix), "host": d.text(&s.Host),
		})
		switch {
		case err != nil:
			return err
		case s.Name == "":
			return d.errorf(n, "add name:", "an entry of secrets needs the name of a stored secret")
		case s.Header != "" || s.Host != "" || s.Prefix != "":
			if err := d.injected(n, s); err != nil {
				return err
			}
		case !variable(s.Env):
			return d.errorf(n, "for example env: API_TOKEN", "env must be the name of an environment variable, not %.60q", s.Env)
		}
		*to = append(*to, s)
		return nil
	}
}

// injected checks a secret that goes into a header outside of the sandbox.
func (d document) injected(n ast.Node, s sallyport.SecretGrant) error {
	const hint = `for example header: Authorization, prefix: "Bearer ", host: api.example.com:443`
	if _, err := egress.ParseTarget(s.Host); err != nil {
		return d.errorf(n, hint, "a secret in a header belongs to one host:port: %s", err)
	}
	switch {
	case s.Env != "":
		return d.errorf(n, "keep header and host: the value then never enters the sandbox", "a secret is an environment variable or a header, not both")
	case s.Header == "":
		return d.errorf(n, hint, "a secret with a host or a prefix needs the name of a header")
	}
	return nil
}

func variable(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}

func (d document) deprecated(to **sallyport.Deprecation) setter {
	return func(n ast.Node) error {
		var v sallyport.Deprecation
		err := d.object(n, "deprecated", fields{"since": d.day(&v.Since), "until": d.day(&v.Until), "use": d.text(&v.Use)})
		if err == nil && v.Use != "" && !validName(v.Use) {
			err = d.errorf(n, "name another tool as agents see it", "%.80q of use is not the name of a tool", v.Use)
		}
		if err == nil && v.Since != "" && v.Until != "" && v.Until < v.Since {
			err = d.errorf(n, "correct one of them", "it ends (until: %s) before it begins (since: %s)", v.Until, v.Since)
		}
		*to = &v
		return err
	}
}

// day takes a date as it is written, in quotes or not.
func (d document) day(to *string) setter {
	return func(n ast.Node) error {
		s := n.GetToken().Value
		if _, err := time.Parse(time.DateOnly, s); err != nil {
			return d.errorf(n, "for example 2027-01-31", "expected a day as YYYY-MM-DD, got %.40q", n.String())
		}
		*to = s
		return nil
	}
}

func (d document) compensate(to **sallyport.Compensation) setter {
	return func(n ast.Node) error {
		var v sallyport.Compensation
		err := d.object(n, "compensate", fields{"tool": d.text(&v.Tool), "idempotent": d.boolean(&v.Idempotent), "arguments": func(n ast.Node) (err error) {
			v.Args, err = d.objectJSON(n)
			return err
		}})
		if err == nil && v.Tool == "" {
			err = d.errorf(n, "add tool:", "compensate needs the tool that undoes this one")
		}
		*to = &v
		return err
	}
}

// maxDedupe bounds how long an identical call counts as a repetition.
const maxDedupe = 24 * time.Hour

func (d document) idempotency(dedupe *time.Duration) setter {
	return func(n ast.Node) error {
		err := d.object(n, "idempotency", fields{"dedupe": d.duration(dedupe)})
		if err == nil && *dedupe > maxDedupe {
			err = d.errorf(n, "for example dedupe: 30s", "dedupe is longer than %s", maxDedupe)
		}
		return err
	}
}

func (d document) limits(to *sallyport.Limits) setter {
	return func(n ast.Node) error {
		return d.object(n, "limits", fields{
			"timeout":   d.duration(&to.Timeout),
			"memory":    d.bytes(&to.Memory),
			"processes": d.count(&to.Processes),
			"disk":      d.bytes(&to.Disk),
			"output":    d.bytes(&to.Output),
			"cpus":      d.number(&to.CPUs),
		})
	}
}

func (d document) duration(to *time.Duration) setter {
	return func(n ast.Node) error {
		s, _ := textOf(n)
		v, err := time.ParseDuration(s)
		if err != nil || v <= 0 {
			return d.errorf(n, "for example 30s, 2m", "expected a length of time with its unit, got %.40q", n.String())
		}
		*to = v
		return nil
	}
}

// units are those of byte counts. Decimal ones are there because people write
// them; they mean what they say.
var units = []struct {
	name string
	size int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
}

func (d document) bytes(to *int64) setter {
	return func(n ast.Node) error {
		s, _ := textOf(n)
		for _, u := range units {
			number, ok := strings.CutSuffix(s, u.name)
			if !ok {
				continue
			}
			v, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			if err != nil || v <= 0 || v > math.MaxInt64/u.size {
				break
			}
			*to = v * u.size
			return nil
		}
		return d.errorf(n, "for example 512MiB", "expected a size with its unit, got %.40q", n.String())
	}
}

func (d document) count(to *int) setter {
	return func(n ast.Node) error {
		v, ok := n.(*ast.IntegerNode)
		if ok {
			if i, err := strconv.Atoi(v.GetToken().Value); err == nil && i > 0 {
				*to = i
				return nil
			}
		}
		return d.errorf(n, "for example 64", "expected a whole number above zero, got %.40q", n.String())
	}
}

func (d document) number(to *float64) setter {
	return func(n ast.Node) error {
		switch n.(type) {
		case *ast.IntegerNode, *ast.FloatNode:
			if f, err := strconv.ParseFloat(n.GetToken().Value, 64); err == nil && f > 0 && f <= 1024 {
				*to = f
				return nil
			}
		}
		return d.errorf(n, "for example 0.5", "expected a number above zero, got %.40q", n.String())
	}
}
