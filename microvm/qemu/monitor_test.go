package qemu

import (
	"context"
	"io"
	"net"
	"testing"
)

// Whatever QEMU answers, which may be the guest's by then, is read or refused.
func FuzzMonitor(f *testing.F) {
	f.Add([]byte(`{"QMP":{}}` + "\n" + `{"return":{}}` + "\n" + `{"event":"STOP"}` + "\n" + `{"return":{"status":"paused"}}` + "\n"))
	f.Add([]byte(`{"QMP":{}}` + "\n" + `{"error":{"desc":"no"}}` + "\n"))
	f.Add([]byte("\n\n[]\n{\"return\":7}\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs) //nolint:errcheck // it ends with the pipe
		go func() {
			_, _ = theirs.Write(said)
			theirs.Close()
		}()
		m := newMonitor(ours)
		defer ours.Close()
		if m.greet(context.Background()) != nil {
			return
		}
		v := &vm{qmp: m, words: &words{}}
		if status, err := v.status(context.Background()); err == nil && len(status) > len(said) {
			t.Errorf("%q", status)
		}
	})
}
