package witness_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/witness"
)

func TestChanged(t *testing.T) {
	was := sallyport.Observation{Name: "rows", Binds: "/table", Hash: "1", Value: "7"}
	other := func(change func(*sallyport.Observation)) []sallyport.Observation {
		o := was
		change(&o)
		return []sallyport.Observation{o}
	}
	for name, c := range map[string]struct {
		now  []sallyport.Observation
		want string
	}{
		"the same":          {other(func(*sallyport.Observation) {}), ""},
		"no witness":        {nil, "other witnesses"},
		"another name":      {other(func(o *sallyport.Observation) { o.Name = "size" }), "other witnesses"},
		"another argument":  {other(func(o *sallyport.Observation) { o.Binds = "/file" }), "other witnesses"},
		"the target itself": {other(func(o *sallyport.Observation) { o.Hash, o.Value = "2", "8" }), "7 → 8"},
	} {
		got := witness.Changed([]sallyport.Observation{was}, c.now)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestUnbound(t *testing.T) {
	m := sallyport.Manifest{
		Fields:  []sallyport.RiskField{{Path: "/from", Kind: "path"}, {Path: "/to", Kind: "path"}, {Path: "/why", Kind: "text"}, {Path: "/gone", Kind: "url"}},
		Witness: []sallyport.Witness{{Name: "source", Binds: "/from"}},
	}
	args := json.RawMessage(`{"from":"a","gone":null,"to":"b","why":"c"}`)
	if got := witness.Unbound(m, args); !slices.Equal(got, []string{"/to"}) {
		t.Errorf("%q", got)
	}
}
