package cost_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sallyport.dev/sallyport/catalog/cost"
)

// All members of a value are looked at for each subschema that it is held against, also
// where the subschema says nothing of them.
func TestMembersOfWhichNothingIsSaid(t *testing.T) {
	wide := compiled(t, `{"allOf": [`+strings.Repeat(`{"minProperties": 0, "minItems": 0},`, 1000)+`true]}`)
	if c, err := cost.Measure(wide); err != nil || !c.Wide {
		t.Fatalf("control: %+v, %v", c, err)
	}
	object, list := map[string]any{}, make([]any, 20_000)
	for i := range list {
		object[fmt.Sprint(i)] = true
	}
	for name, tt := range map[string]struct {
		args any
		ok   bool
	}{
		"an object": {object, false}, "a list": {list, false}, "within": {map[string]any{"a": object}, true},
		"few members": {map[string]any{"a": 1, "b": list[:10]}, true},
	} {
		if err := cost.Within(wide, tt.args); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := cost.Within(compiled(t, `{"allOf": [`+strings.Repeat(`{"minProperties": 0},`, 20)+`true]}`), object); err != nil {
		t.Errorf("a usual schema: %v", err)
	}
}

func compiled(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("tool:///schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("tool:///schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
