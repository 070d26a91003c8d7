package payload

import (
	"reflect"
	"testing"
)

func TestFacts(t *testing.T) {
	for _, f := range []Facts{
		{},
		{Procs: 64, Disk: 5 << 32, ReadOnlyRoot: true, Kernel: "4.4.0 #1", Links: []string{"lo", "eth0"}},
		{NoNewPrivs: true, Capabilities: true, Links: []string{""}},
	} {
		got, ok := ParseFacts(f.Append(nil))
		if !ok || !reflect.DeepEqual(got, f) {
			t.Errorf("%+v came back as %+v, %v", f, got, ok)
		}
	}
	if _, ok := ParseFacts(make([]byte, 12)); ok {
		t.Error("twelve bytes were facts")
	}
}

func FuzzFacts(f *testing.F) {
	f.Add(Facts{Procs: 1, Kernel: "k", Links: []string{"lo"}}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		facts, ok := ParseFacts(b)
		if !ok {
			return
		}
		if again, ok := ParseFacts(facts.Append(nil)); !ok || !reflect.DeepEqual(again, facts) {
			t.Errorf("%q: %+v, then %+v", b, facts, again)
		}
	})
}

func TestAppendOrder(t *testing.T) {
	got := AppendOrder([]byte("-"), []string{"python3", "main.py"}, []string{"A=b"}, []byte("x\x00y"))
	want := "-\x1f\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00python3\x00main.py\x00A=b\x00x\x00y"
	if string(got) != want || int(Uint32(got[1:])) != len(got)-5 {
		t.Errorf("%q, want %q", got, want)
	}
}
