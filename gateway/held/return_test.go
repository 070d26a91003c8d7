package held_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/held"
)

// refused expects a state to be worth nothing, in the same words as any.
func refused(t *testing.T, c *held.Calls, what string, r sallyport.Return) {
	t.Helper()
	res, err := c.Resume(t.Context(), r)
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok || e.Code != sallyport.Invalid || !strings.HasPrefix(e.Message, "requestState is not known, or no longer") || e.CallID != "" || res.Content != nil || res.Questions != nil {
		t.Errorf("%s: %+v, %v", what, res, err)
	}
}

// A state is good once, for its caller and its call, and only as it was given.
func TestAStateIsGoodOnceForItsCaller(t *testing.T) {
	c := open(t, nil)
	state := begin(t, c, asks(2, nil)).State
	for _, r := range []sallyport.Return{
		{Owner: "bob", Binding: "binding of bob", State: state},
		{Owner: "ann", Binding: "binding of ann with other arguments", State: state},
		{Owner: "bob", Binding: "binding of ann", State: state}, // cannot be: the binding names the owner
		{Owner: "ann", Binding: "binding of ann"},
	} {
		refused(t, c, fmt.Sprintf("%+v", r), r)
	}
	other := open(t, func(o *held.Options) { o.Key = slices.Repeat([]byte{7}, 32) })
	refused(t, other, "another key", back(state))
	second, err := c.Resume(t.Context(), back(state, "q0", "0")) // the control: all that was no use of it
	if err != nil || second.State == state {
		t.Fatalf("%+v, %v", second, err)
	}
	refused(t, c, "the same again", back(state, "q0", "0"))
	if res, err := c.Resume(t.Context(), back(second.State, "q1", "1")); err != nil || string(res.Content) != `[0,1]` {
		t.Errorf("%+v, %v", res, err)
	}
	refused(t, c, "after the end", back(second.State, "q1", "1"))
}

// Whatever is changed of a state, it is worth nothing.
func TestEveryChangeOfAStateIsFound(t *testing.T) {
	c := open(t, nil)
	state := begin(t, c, asks(1, nil)).State
	raw, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for bit := range 8 {
			b := slices.Clone(raw)
			b[i] ^= 1 << bit
			refused(t, c, fmt.Sprintf("bit %d of byte %d", bit, i), back(base64.RawURLEncoding.EncodeToString(b), "q0", "0"))
		}
	}
	for n := range raw {
		refused(t, c, fmt.Sprintf("the first %d bytes", n), back(base64.RawURLEncoding.EncodeToString(raw[:n])))
	}
	for _, s := range []string{state + "-TAMPERED", state + "=", state + "\n", " " + state, strings.Repeat(state, 9), strings.ToUpper(state), "", "\x00"} {
		refused(t, c, s, back(s, "q0", "0"))
	}
	if _, err := c.Resume(t.Context(), back(state, "q0", "0")); err != nil {
		t.Errorf("the control: %v", err)
	}
}

func FuzzState(f *testing.F) {
	f.Add("", "")
	f.Add("AAAA", "binding of ann")
	c, err := held.New(held.Options{Key: key, Replica: "one", Now: time.Now})
	if err != nil {
		f.Fatal(err)
	}
	res, err := c.Begin(f.Context(), sallyport.Request{}, asks(1, nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	f.Add(res.State, "binding of bob")
	f.Fuzz(func(t *testing.T, state, binding string) {
		if state == res.State && binding == "binding of ann" {
			return
		}
		if res, err := c.Resume(t.Context(), sallyport.Return{Owner: "ann", Binding: binding, State: state}); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%+v, %v", res, err)
		}
	})
}
