package cedar_test

import (
	"testing"

	"sallyport.dev/sallyport"
)

var plainRisk = sallyport.Risk{}

// TO-26: a policy rests on no argument that has a twin in another case, since
// its server may read the other one. Duplicates never come so far: the canonical
// form refuses them.
func TestTO26_TwinsInAnotherCase(t *testing.T) {
	e := engine(t, `
permit (principal, action, resource);
@id("large")
forbid (principal, action == Action::"call", resource) when { context.args has amount && context.args.amount > 1000 };
@id("deep")
forbid (principal, action == Action::"call", resource) when { context.args has pay && context.args.pay has to && context.args.pay.to == "eve" };
`)
	for args, allow := range map[string]bool{
		`{"amount":1}`: true, `{"amount":1001}`: false, `{"amount":1,"AMOUNT":9999}`: false, `{"Amount":9999,"amount":1}`: false,
		`{"AMOUNT":9999}`: true, `{"other":1,"OTHER":2}`: false,
		`{"pay":{"to":"ann"}}`: true, `{"pay":{"To":"eve","to":"ann"}}`: false, `{"PAY":{"to":"eve"},"pay":{"to":"ann"}}`: false,
		`{"\u212Aey":1,"key":2}`: false, `{"key":1,"kex":2}`: true,
	} {
		if v := decide(t, e, call(agent("a"), upstream("pay", "send"), plainRisk, args)); v.Allow != allow {
			t.Errorf("%s: allow %v, want %v: %v", args, v.Allow, allow, v.Reasons)
		}
	}
	// Where no policy reads arguments, they pass as they are.
	free := engine(t, `permit (principal, action, resource);`)
	if v := decide(t, free, call(agent("a"), upstream("pay", "send"), plainRisk, `{"id":1,"ID":2}`)); !v.Allow {
		t.Errorf("nobody reads them: %v", v.Reasons)
	}
}
