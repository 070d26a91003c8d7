package audit

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// A head that was kept elsewhere and altered is a problem, wherever the change is;
// one whose end a crash cut off is none.
func TestAlteredHeadIsSeen(t *testing.T) {
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	msg, err := k.sign(7, tlog.Hash{7}, time.Unix(7, 0))
	if err != nil {
		t.Fatal(err)
	}
	vs, err := newVerifiers([]string{k.Public()})
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Index(msg, []byte("\n\n")) // what is signed
	for i := range body + 2 {
		text := append(bytes.Clone(msg), msg...)
		text[len(msg)+i] ^= 1
		var rep Report
		kept := readKept(text, &rep)
		wrong := len(rep.Problems)
		for _, all := range kept {
			for _, h := range all {
				if vs.check(h) != nil {
					wrong++
				}
			}
		}
		if wrong == 0 {
			t.Errorf("byte %d of a head is another one, and nothing is said: %q", i, text[len(msg):])
		}
	}
	for cut := 1; cut < len(msg); cut++ {
		var rep Report
		text := append(bytes.Clone(msg[:len(msg)-cut]), '\n')
		if readKept(append(text, msg...), &rep); len(rep.Problems) > 0 {
			t.Errorf("cut by %d: %+v", cut, rep.Problems)
		}
	}
}
