package trust_test

import (
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/trust"
)

// Definitions that were found by searching taint nobody; the same words from
// anything else do, whatever it is called.
func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		tool  sallyport.Tool
		doubt bool
	}{
		{sallyport.Tool{Name: "search_tools", Origin: sallyport.Origin{Backend: "builtin", Name: "search_tools"}}, false},
		{sallyport.Tool{Name: "approval_result", Origin: sallyport.Origin{Backend: "builtin", Name: "approval_result"}}, true},
		{sallyport.Tool{Name: "search_tools", Origin: sallyport.Origin{Backend: "sandbox", Name: "search_tools"}}, true},
		{sallyport.Tool{Name: "a__search_tools", Origin: sallyport.Origin{Backend: "upstream", Server: "a", Name: "search_tools"}}, true},
		{sallyport.Tool{Name: "search_tools", Origin: sallyport.Origin{Backend: "builtin", Name: "search_tools"}, Manifest: sallyport.Manifest{Untrusted: true}}, true},
	} {
		if got := trust.Doubt(c.tool, []string{trust.FlagInstructions}) != ""; got != c.doubt {
			t.Errorf("%+v: in doubt %v", c.tool.Origin, got)
		}
	}
	if why := trust.Doubt(sallyport.Tool{}, nil); why != "" {
		t.Errorf("without a finding: %s", why)
	}
}
