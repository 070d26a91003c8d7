package upstream_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/test/await"
)

// asksWith is a job whose client says what say returns.
func asksWith(name, args string, say sallyport.Ask) sallyport.Job {
	j := backendtest.Job(tool("s", name), args)
	j.Ask, j.Can = say, sallyport.Abilities{Form: true, Roots: true}
	return j
}

func accepts(_ context.Context, q []sallyport.Question) ([]sallyport.Answer, error) {
	return []sallyport.Answer{{Result: []byte(`{"action":"accept","method":"` + q[0].Method + `"}`)}}, nil
}

// A program that asks in the middle of its only call gets the answer of that call's
// client; while several of one caller are under way it gets it once the others have
// ended; and none after the call.
func TestProgramsThatAsk(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger")
	b := open(t, options(), server("s", "legacy", ledger))
	run := func(j sallyport.Job) string {
		t.Helper()
		out, err := b.Run(t.Context(), j)
		if err != nil {
			t.Error(err)
		}
		text, err := backendtest.Text(out)
		if err != nil {
			t.Error(err)
		}
		return text
	}
	if got := run(asksWith("await", `{"id":"q1"}`, accepts)); got != `{"jsonrpc":"2.0","id":"q1","result":{"action":"accept","method":"elicitation/create"}}` {
		t.Errorf("%s", got)
	}
	refused := func(context.Context, []sallyport.Question) ([]sallyport.Answer, error) {
		return []sallyport.Answer{{Refusal: "no", Code: -1}}, nil
	}
	if got := run(asksWith("await", `{"id":2}`, refused)); got != `{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no"}}` {
		t.Errorf("%s", got)
	}
	if got := run(asksWith("await", `{"id":"q3"}`, nil)); !strings.Contains(got, `"code":-32601,"message":"the client of this call cannot be asked`) {
		t.Errorf("a client that cannot be asked: %s", got)
	}
	gate := filepath.Join(t.TempDir(), "gate")
	held := make(chan string, 1)
	go func() { held <- mustText(t, b, "s", "hold", `{"until":"`+gate+`"}`) }()
	await.That(t, "a call is under way", func() bool { l, _ := os.ReadFile(ledger); return strings.Contains(string(l), "until") })
	second := make(chan string, 1)
	go func() { second <- run(asksWith("await", `{"id":"q4"}`, accepts)) }()
	await.That(t, "a second one is", func() bool { l, _ := os.ReadFile(ledger); return strings.Contains(string(l), `"q4"`) })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-held
	if got := <-second; !strings.Contains(got, "accept") {
		t.Errorf("two calls at once: %s", got)
	}
	if got := run(asksWith("late", `{}`, accepts)); got != "done" {
		t.Errorf("%s", got)
	}
	await.That(t, "a question after the call is refused", func() bool {
		l, _ := os.ReadFile(ledger)
		return strings.Contains(string(l), `"id":"late","error"`)
	})
	if got := run(asksWith("await", `{"id":"q5"}`, accepts)); !strings.Contains(got, "accept") {
		t.Errorf("the control: %s", got)
	}
}

// A program that takes its question back gets no response to it; the client is told.
func TestAQuestionThatIsTakenBack(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger")
	b := open(t, options(), server("s", "legacy", ledger))
	told := make(chan error, 1)
	out, err := b.Run(t.Context(), asksWith("take-back", `{}`, func(ctx context.Context, _ []sallyport.Question) ([]sallyport.Answer, error) {
		select {
		case <-ctx.Done():
		case <-time.After(await.Patience):
		}
		told <- ctx.Err()
		return nil, ctx.Err()
	}))
	if err != nil || !strings.Contains(string(out.Content), "after") {
		t.Fatalf("%s, %v", out.Content, err)
	}
	if err := <-told; err == nil {
		t.Error("the client is not told")
	}
	time.Sleep(20 * time.Millisecond)
	if l, _ := os.ReadFile(ledger); strings.Contains(string(l), `"id":"t"`) {
		t.Errorf("%s", l)
	}
}
