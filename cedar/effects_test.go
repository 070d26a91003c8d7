package cedar_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cedar"
)

const effectPolicies = `
permit (principal, action, resource);
@id("large") @approval("required")
forbid (principal, action == Action::"call", resource) when { context has amount && context.amount.greaterThan(decimal("1000.0")) };
@id("dollars")
forbid (principal, action == Action::"call", resource) when { context has currency && context.currency == "USD" };
@id("removal") @approval("required")
forbid (principal, action == Action::"call", resource) when { context.risk_effects.containsAny(["delete", "destroy"]) };
@id("tainted")
forbid (principal, action == Action::"call", resource) when { context.tainted && context.risk_effects.contains("privileges") };
`

// Policies see what a call does and how much money it moves, exactly.
func TestEffectsAndAmounts(t *testing.T) {
	e := engine(t, effectPolicies)
	amounts := func(currency string, values ...string) (out []sallyport.Amount) {
		for _, v := range values {
			out = append(out, sallyport.Amount{Value: v, Currency: currency})
		}
		return out
	}
	for _, tt := range []struct {
		name     string
		risk     sallyport.Risk
		tainted  bool
		allow    bool
		approval bool
	}{
		{"nothing", sallyport.Risk{}, false, true, false},
		{"999.99", sallyport.Risk{Amounts: amounts("EUR", "999.99")}, false, true, false},
		{"1000", sallyport.Risk{Amounts: amounts("EUR", "1000")}, false, true, false},
		{"a hundred-thousandth more", sallyport.Risk{Amounts: amounts("EUR", "1000.00001")}, false, true, true},
		{"1000.01", sallyport.Risk{Amounts: amounts("EUR", "1000.01")}, false, true, true},
		{"twice 999", sallyport.Risk{Amounts: amounts("EUR", "999", "999")}, false, true, true},
		{"more than a decimal holds", sallyport.Risk{Amounts: amounts("EUR", strings.Repeat("9", 40))}, false, true, true},
		{"not readable", sallyport.Risk{Amounts: amounts("EUR", "x")}, false, true, true},
		{"dollars", sallyport.Risk{Amounts: amounts("USD", "1")}, false, false, false},
		{"a removal", sallyport.Risk{Effects: []string{"delete", "network"}}, false, true, true},
		{"a read", sallyport.Risk{Effects: []string{"network", "read"}}, false, true, false},
		{"privileges", sallyport.Risk{Effects: []string{"privileges"}}, false, true, false},
		{"privileges, tainted", sallyport.Risk{Effects: []string{"privileges"}}, true, false, false},
		{"a read, tainted", sallyport.Risk{Effects: []string{"read"}}, true, true, false},
	} {
		for range 2 { // the second time from the cache
			q := call(agent("a"), upstream("pay", "send"), tt.risk, "")
			q.Tainted = tt.tainted
			if v := decide(t, e, q); v.Allow != tt.allow || (len(v.Demands) > 0) != tt.approval {
				t.Errorf("%s: allow %v, approval %v, want %v, %v (%v)", tt.name, v.Allow, len(v.Demands) > 0, tt.allow, tt.approval, v.Reasons)
			}
		}
	}
}

// A policy about an effect that does not exist, or an amount without a guard, is
// refused when it is loaded.
func TestEffectsAreChecked(t *testing.T) {
	for _, when := range []string{
		`context.risk_effects.contains("mony")`, `context.risk_effects.containsAny(["delete","destory"])`,
		`context.amount.greaterThan(decimal("1.0"))`, `context has amount && context.amount > 5`, `context.taint`,
	} {
		dir := write(t, `permit (principal, action == Action::"call", resource) when { `+when+` };`)
		if _, err := cedar.Load(dir); err == nil {
			t.Errorf("a policy with %s was taken", when)
		}
	}
}
