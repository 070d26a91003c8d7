package stage_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

func TestStage(t *testing.T) {
	g, ledger, self := stage.New(t), stage.NewLedger(t), stage.Self(t)
	g.Write("sallyport.yaml", g.Config(stage.Servers(map[string]stage.Server{"a": stage.Actor(self, "a", ledger.Env())})))
	g.Manifests("a")
	g.Start("a")
	if r := g.Must("", "call", "a__pay", `{"to": "A"}`); !strings.Contains(r.Out, "paid") || ledger.Count(`{"to":"A"}`) != 1 {
		t.Errorf("%s; the ledger has %q", r, ledger.Lines())
	}
	if len(stage.Players(t, self)) != 1 {
		t.Errorf("the actor is not among the processes: %v", stage.Players(t, self))
	}
	if r := g.Must("", "tools", "list"); !strings.Contains(r.Out, "run_python") {
		t.Errorf("tools list: %s", r)
	}
	if g.Token("") == "" {
		t.Error("no token")
	}
	g.Login()
	g.Stop()
	if r := g.Run("", "tools", "list"); r.Code != 5 {
		t.Errorf("after Stop: %s", r)
	}
	if p := stage.Players(t, self); len(p) != 0 {
		t.Errorf("the actor is still there: %v", p)
	}
	g.Start() // the same folder, once more
	g.Stop()
}
