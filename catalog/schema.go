package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/openapi/request"
	"sallyport.dev/sallyport/catalog/cost"
	"sallyport.dev/sallyport/catalog/fit"
	"sallyport.dev/sallyport/catalog/literal"
	"sallyport.dev/sallyport/wire"
)

// Bounds on an upstream's schemas. A schema beyond them is refused before it
// is compiled, so that no upstream can make the gateway burn CPU or memory.
const (
	maxSchemaBytes = 512 << 10
	maxSchemaDepth = 64
)

// checker validates arguments for one schema. A nil schema checks nothing.
type checker struct {
	schema   *jsonschema.Schema
	cost     cost.Cost
	warnings []string
}

// dialects are the values of $schema that can be validated, without scheme
// and trailing #.
var dialects = map[string]bool{
	"json-schema.org/draft-04/schema":      true,
	"json-schema.org/draft-06/schema":      true,
	"json-schema.org/draft-07/schema":      true,
	"json-schema.org/draft/2019-09/schema": true,
	"json-schema.org/draft/2020-12/schema": true,
}

// refuse is the loader of external references: it loads nothing, ever.
type refuse struct{}

func (refuse) Load(url string) (any, error) {
	return nil, fmt.Errorf("external reference %.100q is refused: a schema must be complete in itself", url)
}

// compile prepares a schema that is one valid JSON object.
func compile(raw json.RawMessage) (*checker, error) {
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("schema_too_complex: it has %d bytes, at most %d are taken", len(raw), maxSchemaBytes)
	}
	if literal.Depth(raw) > maxSchemaDepth {
		return nil, fmt.Errorf("schema_too_complex: it is nested deeper than %d levels", maxSchemaDepth)
	}
	if err := literal.CheckNumbers(raw); err != nil {
		return nil, err
	}
	c := &checker{}
	raw = fit.Plain(raw)
	if v := wire.Member(raw, "$schema"); v != nil {
		s, _ := wire.String(v)
		_, id, _ := strings.Cut(strings.TrimSuffix(s, "#"), "://")
		if !dialects[id] {
			c.warnings = append(c.warnings, fmt.Sprintf("arguments are not validated: its schema is of the unknown dialect %.100s", v))
			return c, nil
		}
	}
	err := c.under(jsonschema.Draft2020, raw)
	for _, older := range elders {
		if _, invalid := errors.AsType[*jsonschema.SchemaValidationError](err); !invalid || wire.Member(raw, "$schema") != nil {
			break
		}
		in := &checker{warnings: []string{"its schema names no dialect and is none of 2020-12, so it is read as one of " + older.name}}
		if in.under(older.draft, raw) == nil {
			c, err = in, nil
		}
	}
	if err != nil {
		return nil, plain(err)
	}
	if c.cost, err = cost.Measure(c.schema); err != nil {
		return nil, err
	}
	return c, nil
}

// elders are the dialects in which a schema may be written that does not say in
// which one: with lists of items, or with limits that are exclusive by true.
var elders = []struct {
	name  string
	draft *jsonschema.Draft
}{{"draft-07", jsonschema.Draft7}, {"draft-04", jsonschema.Draft4}}

// under compiles a schema by its own dialect, or else by the one given.
func (c *checker) under(draft *jsonschema.Draft, raw json.RawMessage) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(draft)
	compiler.UseLoader(refuse{})
	compiler.UseRegexpEngine(c.pattern)
	const here = "tool:///schema.json"
	if err := compiler.AddResource(here, doc); err != nil {
		return err
	}
	c.schema, err = compiler.Compile(here)
	return err
}

// anything stands for a pattern that linear-time matching cannot do.
type anything string

func (anything) MatchString(string) bool { return true }
func (a anything) String() string        { return string(a) }

// pattern compiles a regular expression. One that needs look-around or
// back-references is not enforced, and said so: refusing the tool for it would
// take away what many honest generators write.
func (c *checker) pattern(s string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(s)
	if err != nil {
		c.warnings = append(c.warnings, fmt.Sprintf("the pattern %.60q of its schema is not enforced: %v", s, err))
		return anything(s), nil
	}
	return re, nil
}

// plain shortens a compiler's error to what an operator can use.
func plain(err error) error {
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		if v, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			return errors.New(strings.Join(leaves(v, nil), "; "))
		}
	}
	if load, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return load.Err
	}
	return fmt.Errorf("%.300s", err)
}

// Validate checks canonical arguments against the tool's input schema.
func (c *Catalog) Validate(tool sallyport.Tool, args json.RawMessage) error {
	check, err := c.checker(tool)
	if err == nil {
		err = check.validate(args)
	}
	if err == nil && tool.Route != nil { // nobody is asked about a request that is never made
		_, err = request.Build(tool.Route, args)
	}
	if err == nil {
		return nil
	}
	e := &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Validate,
		Message: fmt.Sprintf("the arguments do not fit the input schema of %s: %v", tool.Name, err),
		Hint:    "correct the arguments as the tool's inputSchema says",
	}
	if name, ok := wire.String(wire.Member(args, "image")); ok && tool.Origin.Backend == "sandbox" && tool.Manifest.Images[name] == "" {
		e.Message = fmt.Sprintf("the image %.64q is not one that a call of %s may choose", name, tool.Name)
		e.Hint = "leave image out: an operator has listed no others (sandbox.images)"
		if names := slices.Sorted(maps.Keys(tool.Manifest.Images)); len(names) > 0 {
			e.Hint = "leave image out, or choose one of " + strings.Join(names, ", ")
		}
	}
	return e
}

// CheckOutput checks structured content against the tool's output schema. A
// tool without a usable one fits.
func (c *Catalog) CheckOutput(tool sallyport.Tool, structured json.RawMessage) error {
	e := c.now.Load().entries[tool.Name]
	if e == nil || e.output == nil || e.tool.Digest != tool.Digest {
		return nil
	}
	return e.output.validate(structured)
}

// checker finds the compiled schema of a tool that Resolve returned, perhaps
// from an earlier snapshot.
func (c *Catalog) checker(tool sallyport.Tool) (*checker, error) {
	if e := c.now.Load().entries[tool.Name]; e != nil && e.tool.Digest == tool.Digest {
		if e.schema == nil {
			return nil, errors.New("the schema itself is malformed")
		}
		return e.schema, nil
	}
	return compile(tool.InputSchema)
}

func (c *checker) validate(args json.RawMessage) error {
	if c.schema == nil {
		return nil
	}
	doc, err := literal.Decode(args)
	if err == nil && c.cost.Wide {
		err = cost.Within(c.schema, doc)
	}
	if err != nil {
		return err
	}
	err = c.schema.Validate(doc)
	if v, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return errors.New(strings.Join(leaves(v, nil), "; "))
	}
	return err
}

const maxFindings = 8

// leaves collects the innermost findings as "/path: what", at most maxFindings.
func leaves(v *jsonschema.ValidationError, out []string) []string {
	if len(v.Causes) == 0 {
		where := "/" + strings.Join(v.InstanceLocation, "/")
		what := v.ErrorKind.LocalizedString(message.NewPrinter(language.English))
		return append(out, fmt.Sprintf("%.200s: %.300s", where, what))
	}
	for _, cause := range v.Causes {
		if len(out) >= maxFindings {
			return out
		}
		out = leaves(cause, out)
	}
	return out
}
