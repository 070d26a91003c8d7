package suite

import (
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

func TestMain(m *testing.M) { Main(m) }

// roomy lifts the limits that a suite's many calls would meet.
const roomy = "limits: {rate: 100000, burst: 100000, concurrency: 512, bytes: 1GiB}\n"

// The server face, before the reference SDK's server: each frozen set of
// requirements, all of what it scores.
func TestServerRequirements(t *testing.T) {
	s := New(t)
	sessions, stateless := Everything(t, "-stateless=false"), Everything(t)
	g := stage.New(t)
	Behind(g)
	g.Write("sallyport.yaml", g.Config(roomy+stage.Servers(map[string]stage.Server{
		"sessions": {URL: sessions}, "stateless": {URL: stateless},
	})+"profiles: {sessions: {servers: [sessions], bare: true}, stateless: {servers: [stateless], bare: true}}\n"))
	g.Start("sessions", "stateless")
	url := Forward(t, g)
	for _, run := range []struct{ revision, profile string }{
		{"2025-11-25", "sessions"}, {"2026-07-28", "stateless"},
	} {
		t.Run(run.revision, func(t *testing.T) {
			g.In(t)
			s.t = t
			s.Server(run.revision, url+"/mcp/"+run.profile).Judge(t, nil)
		})
	}
}
