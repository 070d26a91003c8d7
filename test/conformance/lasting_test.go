package conformance

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/test/npm"
	"sallyport.dev/sallyport/test/stage"
)

// A call that takes long, of a real server that itself makes a task of it: for a client
// that takes tasks it becomes one, whose question and result another gateway on the same
// database has, too. Where the one that ran it was killed, nobody knows; and nobody else
// has anything by its name. A client without tasks waits, and hears how it is going.
func TestCallsThatTakeLong(t *testing.T) {
	t.Parallel()
	n := npm.Find(t).Open(t)
	var g [2]*stage.Gateway
	var c [2]raw
	g[0] = stage.NewOn(t, postgrestest.New(t).Database(t))
	g[1] = g[0].Join(t)
	every := n.Server("server-everything", "stdio")
	for i := range g {
		g[i].Write("sallyport.yaml", g[i].Config(stage.Servers(map[string]stage.Server{"e": every})+"limits: {task: 1s}\n"))
		g[i].Write("tools/research.yaml", "server: e\ntool: simulate-research-query\nrisk: high\n")
		g[i].Start("e")
		c[i] = newRaw(t, g[i])
	}
	const able = takesTasks + `,"elicitation":{}`
	call := func(c raw, args, can string) taskAnswer {
		return c.ask(t, can, "tools/call", "e__simulate-research-query", `"name":"e__simulate-research-query","arguments":`+args)
	}
	get := func(c raw, id string) taskAnswer { return c.ask(t, able, "tasks/get", id, `"taskId":`+str(id)) }

	made := call(c[0], `{"topic":"doors","ambiguous":true}`, able).Result
	if made.ResultType != "task" || made.Status != "working" || !strings.HasPrefix(made.TaskID, "run_") {
		t.Fatalf("the task: %+v", made)
	}
	refusedTasks(t, g[1], c[1], made.TaskID)
	var asked taskAnswer
	await.That(t, "the task asks, at the other gateway", func() bool {
		asked = get(c[1], made.TaskID)
		return asked.Result.Status == "input_required"
	})
	if len(asked.Result.InputRequests) != 1 || !asked.Result.CreatedAt.Equal(made.CreatedAt) {
		t.Errorf("%+v", asked)
	}
	for key := range asked.Result.InputRequests {
		answer := `"inputResponses":{` + str(key) + `:{"action":"accept","content":{"interpretation":"historical"}}}`
		if a := c[1].ask(t, able, "tasks/update", made.TaskID, `"taskId":`+str(made.TaskID)+","+answer); a.Error != nil || a.Result.ResultType != "complete" {
			t.Errorf("update: %+v", a)
		}
	}
	await.That(t, "it ends", func() bool { return get(c[1], made.TaskID).Result.Status == "completed" })
	for i := range c {
		a := get(c[i], made.TaskID).Result
		if a.Result == nil || a.Result.IsError || !strings.Contains(a.Result.Content[0].Text, "doors (historical)") || strings.Contains(a.Result.Content[0].Text, "unavailable") {
			t.Errorf("at gateway %d: %+v", i, a)
		}
	}

	lost := call(c[0], `{"topic":"gates"}`, takesTasks).Result
	gone := call(c[1], `{"topic":"walls"}`, takesTasks).Result
	if a := c[0].ask(t, takesTasks, "tasks/cancel", gone.TaskID, `"taskId":`+str(gone.TaskID)); a.Error != nil || a.Result.ResultType != "complete" {
		t.Errorf("cancelled at the other gateway: %+v", a)
	}
	await.That(t, "it is cancelled", func() bool { return get(c[0], gone.TaskID).Result.Status == "completed" })
	if a := get(c[0], gone.TaskID).Result.Result; a == nil || !a.IsError || !strings.Contains(a.Content[0].Text, "outcome_unknown") {
		t.Errorf("what was cancelled may have acted: %+v", a)
	}
	g[0].Kill()
	g[0].Start("e")
	if a := get(c[1], lost.TaskID).Result.Result; a == nil || !a.IsError || !strings.Contains(a.Content[0].Text, "outcome_unknown") {
		t.Errorf("after the gateway that ran it was killed: %+v", a)
	}
	if a := call(c[1], `{"topic":"moats"}`, "").Result; a.ResultType != "complete" {
		t.Errorf("a client without tasks: %+v", a)
	}
}
