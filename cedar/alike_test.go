package cedar_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
)

// TO-03: what a rule forbids, or holds, it does for every name that a reader would
// take for the one that it names. What a rule allows is that name alone.
func TestTO03LookAlikesDoNotSlipPastADenyRule(t *testing.T) {
	e := engine(t, `
		@id("all") permit (principal, action, resource);
		@id("never") forbid (principal, action, resource == Tool::"crm__delete_user");
		@id("args") forbid (principal, action == Action::"call", resource == Tool::"bank__transfer") when { context.args has to && context.args.to == "eve" };
		@id("listed") forbid (principal, action == Action::"call", resource) when { ["mail__send_all", "x"].contains(resource.name) };
		@id("held") @approval("required") forbid (principal, action == Action::"call", resource == Tool::"ops__restart");
	`)
	ask := func(name, args string, action gateway.Action) gateway.Verdict {
		server, _, _ := strings.Cut(name, "__")
		q := gateway.Question{Who: sallyport.Principal{Tenant: "t", ID: "a"}, Action: action, Tool: sallyport.Tool{Name: name, Origin: sallyport.Origin{Backend: "upstream", Server: server}}}
		if action == gateway.ActionCall {
			q.Args = []byte(args)
		}
		v, err := e.Authorize(q)
		if err != nil {
			t.Fatal(name, err)
		}
		return v
	}
	for _, name := range []string{
		"crm__delete_user", "crm__deIete_user", "crm__de1ete_user", "crm__delete-user", "crm__deleteUser", "crm__DELETE_USER", "crm__delete__user", "crrn__delete_user", "crm_delete_user",
		"crm__dеlete_user", "crm__ｄelete_user", "crm__delete_uѕer", "crm__délete_user", "crm__de\u0301lete_user", "crm__delete_us\u200ber",
	} {
		if !strings.HasPrefix(name, "crrn") && ask(name, "{}", gateway.ActionCall).Allow || ask(name, "", gateway.ActionList).Allow {
			t.Errorf("%q slips past", name)
		}
	}
	if v := ask("crm__deIete_user", "{}", gateway.ActionCall); len(v.Policies) != 1 || v.Policies[0] != "never" || !strings.Contains(v.Reasons[0], "crm__delete_user") {
		t.Errorf("%+v", v)
	}
	if ask("bank__transfеr", `{"to":"eve"}`, gateway.ActionCall).Allow || !ask("bank__transfеr", `{"to":"ann"}`, gateway.ActionCall).Allow {
		t.Error("conditions do not count")
	}
	if ask("mail__send_a11", `{}`, gateway.ActionCall).Allow {
		t.Error("a name in a condition slips past")
	}
	if v := ask("ops__re5tart", "{}", gateway.ActionCall); len(v.Demands) != 0 {
		t.Errorf("5 is no s: %+v", v)
	}
	if v := ask("ops__reStart", "{}", gateway.ActionCall); !v.Allow || len(v.Demands) != 1 {
		t.Errorf("held for no human: %+v", v)
	}
	// The control, and names that only begin alike.
	for _, name := range []string{"crm__delete_users", "crm__undelete_user", "crm__get_user", "crm2__delete_user", "mail__send", "ops__start"} {
		if v := ask(name, "{}", gateway.ActionCall); !v.Allow || len(v.Demands) != 0 {
			t.Errorf("%s: %+v", name, v)
		}
	}
	// Allowed is what is named, byte for byte.
	e = engine(t, `permit (principal, action, resource == Tool::"crm__get_user");`)
	if !ask("crm__get_user", "{}", gateway.ActionCall).Allow || ask("crm__gеt_user", "{}", gateway.ActionCall).Allow || ask("crm__get-user", "{}", gateway.ActionCall).Allow {
		t.Error("a permit means more than one name, or not that")
	}
}
