package guest

import (
	"reflect"
	"testing"
)

func TestWords(t *testing.T) {
	r := Renewal{Now: 1 << 60, Hostname: "sandbox-1", Bounds: Bounds{1, 2, 3, 4}}
	r.Seed[63], r.MachineID[15], r.BootID[0] = 1, 2, 3
	if got, ok := ParseRenewal(r.Append(nil)); !ok || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v", got)
	}
	for _, l := range []Launch{{}, {Memory: 5, NoInput: true, Leads: true}, {Ahead: true, Stays: true}} {
		if got, ok := ParseLaunch(l.Append(nil)); !ok || got != l {
			t.Errorf("%+v became %+v", l, got)
		}
	}
	e := Ending{9, 1, 1 << 40, true, false}
	if got, ok := ParseEnding(e.Append(nil)); !ok || got != e {
		t.Errorf("%+v", got)
	}
}

// What a guest says is read, or is not; it breaks nothing.
func FuzzWords(f *testing.F) {
	f.Add(Ending{1, 2, 3, true, true}.Append(nil))
	f.Add(Bounds{1, 2, 3, 4}.Append(nil))
	f.Add(Renewal{Hostname: "x"}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, ok := ParseEnding(b); ok && len(e.Append(nil)) != len(b) {
			t.Error(e)
		}
		if o, ok := ParseBounds(b); ok && string(o.Append(nil)) != string(b) {
			t.Error(o)
		}
		ParseHello(b)
		if r, ok := ParseRenewal(b); ok && string(r.Append(nil)) != string(b) {
			t.Error(r)
		}
	})
}
