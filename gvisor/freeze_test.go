package gvisor_test

import (
	"bytes"
	"testing"
	"time"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// A frozen box goes on where it was. Its state is legible, so whoever keeps it
// has to encrypt it (which package session does, and its tests see).
func TestFreeze(t *testing.T) {
	h := gvisortest.Open(t)
	r := fill(tier.Request{})
	b, err := h.OpenBox(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(b *gvisor.Box, code string) (stdout string) {
		t.Helper()
		p := payload.Append(nil, payload.Code, []byte(code))
		for _, a := range []string{"bash", "-c", `while read l <&3; do . /run/session/code; echo 0 >&4; done`} {
			p = payload.Append(p, payload.Arg, []byte(a))
		}
		if _, err := b.In.Write(payload.Append(p, payload.Interpret, []byte("x"))); err != nil {
			t.Fatal(err)
		}
		for {
			k, data, err := payload.Read(b.Out)
			switch {
			case err != nil || k == payload.Refused:
				t.Fatalf("%c %q %v", k, data, err)
			case k == payload.Stdout:
				stdout += string(data[4:])
			case k == payload.Exit:
				return stdout
			}
		}
	}
	if got := ask(b, "x=canary-in-memory; echo $x"); got != "canary-in-memory\n" {
		t.Fatalf("%q", got)
	}
	var state bytes.Buffer
	began := time.Now()
	if err := b.Freeze(&state); err != nil {
		t.Fatal(err)
	}
	t.Logf("frozen after %v: %d KiB", time.Since(began), state.Len()>>10)
	if !bytes.Contains(state.Bytes(), []byte("canary-in-memory")) {
		t.Error("control: the state is not legible, so nothing shows that it is encrypted")
	}
	if l := h.List(); len(l) != 0 {
		t.Errorf("a frozen box still has a sandbox: %v", l)
	}
	began = time.Now()
	again, err := b.Thaw(t.Context(), r, &state)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("thawed after %v", time.Since(began))
	if got := ask(again, "echo $x again"); got != "canary-in-memory again\n" {
		t.Errorf("%q", got)
	}
	if err := again.Destroy(); err != nil {
		t.Fatal(err)
	}
}
