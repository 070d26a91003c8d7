package payload

import (
	"bytes"
	"testing"
)

// Any bytes are records, or end with an error; none makes a reader take more
// than MaxRecord, and what is read is what Append writes.
func FuzzRecords(f *testing.F) {
	f.Add(Append(Append(nil, Arg, []byte("true")), Go, nil))
	f.Add(Append(nil, Started, Facts{Procs: 1, Links: []string{"lo"}}.Append(nil)))
	f.Add([]byte{byte(Data), 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{byte(Exit), 4, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		rest := b
		for len(rest) >= HeaderSize {
			k, n, err := Header(rest)
			if err != nil {
				return
			}
			if n < 0 || n > MaxRecord {
				t.Fatalf("a record of %d bytes", n)
			}
			if rest = rest[HeaderSize:]; n > len(rest) {
				return
			}
			again = Append(again, k, rest[:n])
			rest = rest[n:]
		}
		if whole := b[:len(b)-len(rest)]; !bytes.Equal(again, whole) {
			t.Errorf("%q came back as %q", whole, again)
		}
	})
}
