package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// testRepeats: what repeats nothing by itself runs again after an unknown outcome,
// and whoever had it before stores nothing any more.
func testRepeats(t *testing.T, f *fixture) {
	again := begin("k", transfer)
	again.Repeats = true
	old, err := f.Begin(t.Context(), begin("k", transfer))
	must(t, err)
	_, err = f.Begin(t.Context(), again)
	wantCode(t, "while it runs", err, sallyport.InFlight)
	f.pass(2 * time.Minute) // the lease runs out
	other := begin("k", `{}`)
	other.Repeats = true
	_, err = f.Begin(t.Context(), other)
	wantCode(t, "with other arguments", err, sallyport.Conflict)
	fence, err := f.Begin(t.Context(), again)
	must(t, err)
	wantCode(t, "whoever had it", f.Finish(t.Context(), finish("k", old, sallyport.Done)), sallyport.Conflict)
	must(t, f.Finish(t.Context(), finish("k", fence, sallyport.Unknown)))
	_, err = f.Begin(t.Context(), begin("k", transfer))
	wantCode(t, "what may act", err, sallyport.OutcomeUnknown)
	fence, err = f.Begin(t.Context(), again)
	must(t, err)
	must(t, f.Finish(t.Context(), finish("k", fence, sallyport.Done)))
	_, err = f.Begin(t.Context(), again)
	wantCode(t, "once it is done", err, sallyport.InFlight)
}

// testScriptKeys: the inner calls of one script, of whichever tool, and no others.
func testScriptKeys(t *testing.T, f *fixture) {
	root := sallyport.ScriptRoot(key("outer"), "")
	var want []string
	for i, k := range []sallyport.ReservationKey{
		{Tenant: "t", Principal: "agent", Tool: "a", Key: sallyport.ScriptKey(root, 1, "a", json.RawMessage(`{}`))},
		{Tenant: "t", Principal: "agent", Tool: "b", Key: sallyport.ScriptKey(root, 2, "b", json.RawMessage(`{}`))},
		{Tenant: "t", Principal: "other", Tool: "a", Key: sallyport.ScriptKey(root, 3, "a", json.RawMessage(`{}`))},
		{Tenant: "u", Principal: "agent", Tool: "a", Key: sallyport.ScriptKey(root, 4, "a", json.RawMessage(`{}`))},
		{Tenant: "t", Principal: "agent", Tool: "a", Key: sallyport.ScriptKey(sallyport.ScriptRoot(key("another"), ""), 5, "a", json.RawMessage(`{}`))},
		key("plain"),
	} {
		b := begin(fmt.Sprint(i), transfer)
		b.Key = k
		fence, err := f.Begin(t.Context(), b)
		must(t, err)
		done := finish(fmt.Sprint(i), fence, sallyport.Done)
		done.Key = k
		must(t, f.Finish(t.Context(), done))
		if i < 2 {
			want = append(want, k.Tool+" "+k.Key)
		}
	}
	keys, err := f.ScriptKeys(t.Context(), "t", "agent", root)
	must(t, err)
	var got []string
	for _, k := range keys {
		got = append(got, k.Tool+" "+k.Key)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
