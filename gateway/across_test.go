package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact"
)

// A secret that a program prints in two calls, as progress or as its result, does
// not reach the agent whole; what another agent got before does not matter.
func TestTO19_SecretsAcrossCalls(t *testing.T) {
	const secret, cut = "CANARY-9f2Kq8ZxT4vLmW7cRb3N", 12
	w := newWorld(t)
	w.Sanitiser = redact.New(redact.Options{Known: func() []redact.Known { return []redact.Known{{Name: "k", Value: secret}} }})
	said := ""
	w.run = func(_ context.Context, j sallyport.Job) (sallyport.Output, error) {
		j.Notify(sallyport.Notice{Stream: "stdout", Output: []byte(said + "\n")})
		return sallyport.Output{Content: json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, said))}, nil
	}
	ask := func(who, text string) (seen string) {
		t.Helper()
		said = text
		r := call(`{}`)
		r.Credential = "token-of-" + who
		r.Notify = func(n sallyport.Notice) { seen += string(n.Params) }
		res, err := w.Call(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return seen + string(res.Content)
	}
	if got := ask("ann", "first "+secret[:cut]); strings.Count(got, secret[:cut]) != 2 {
		t.Fatalf("control: %s", got)
	}
	if got := ask("ann", "then "+secret[cut:]); strings.Contains(got, secret[cut:]) || strings.Count(got, "part of stored secret k") != 2 {
		t.Errorf("the second half: %s", got)
	}
	if f := w.last(t).Findings; !strings.Contains(strings.Join(f, " "), "stored secret k in parts over several results") {
		t.Errorf("findings %q", f)
	}
	if got := ask("bob", "then "+secret[cut:]); strings.Count(got, secret[cut:]) != 2 {
		t.Errorf("control: another agent: %s", got)
	}
}
