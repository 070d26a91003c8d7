package gvisor

import (
	"math"
	"os"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// What comes out of a sandbox is bytes of process 1 at best. Whatever they are,
// the host reads few and small records, and concludes without a panic.
func FuzzReport(f *testing.F) {
	whole := payload.Append(nil, payload.Started, payload.Facts{Procs: 4, Kernel: "k", Links: []string{"lo"}}.Append(nil))
	whole = payload.Append(whole, payload.Denied, []byte("http://x/"))
	whole = payload.Append(whole, payload.Exit, payload.AppendUint32(nil, 9))
	f.Add(payload.Append(whole, payload.Done, nil))
	f.Add(payload.Append(nil, payload.Failed, nil))
	f.Add(payload.Append(nil, payload.Failed, []byte{2, 0, 0}))
	f.Add(payload.Append(nil, payload.Exit, []byte{1}))
	f.Add([]byte{byte(payload.Denied), 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = w.Write(b); w.Close() }()
		s := &sandbox{report: payload.Report(r, math.MaxInt), limits: sallyport.DefaultLimits(), argv0: "true"}
		n := 0
		for rec := range s.report {
			if n++; len(rec.Data) > 4096 {
				t.Fatalf("a record of %d bytes", len(rec.Data))
			}
			if s.note(rec) {
				break
			}
		}
		for range s.report { // the reader ends with the pipe
			n++
		}
		if n > 8+payload.MaxDenied || len(s.denied) > payload.MaxDenied {
			t.Errorf("%d records, %d denials", n, len(s.denied))
		}
		if s.failed != nil {
			if _, err := s.notStarted(tier.Result{}); err != nil && sallyport.CodeOf(err) == "" {
				t.Errorf("not an error of ours: %v", err)
			}
		}
	})
}
