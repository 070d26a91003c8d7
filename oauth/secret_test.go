package oauth

import (
	"strings"
	"testing"
)

// A name that is nobody's takes as long to refuse as one that exists: the hash
// that stands in for it has the cost and the lengths of a real one.
func TestNobodysHash(t *testing.T) {
	genuine, err := HashPassword("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	a, b := nobodysHash(), nobodysHash()
	if a == b {
		t.Error("it is the same each time")
	}
	if !passwordMatches("correct horse", genuine) {
		t.Fatal("the control: a real hash is not matched")
	}
	if passwordMatches("correct horse", a) {
		t.Error("it matches a password")
	}
	x, y := strings.Split(genuine, "$"), strings.Split(a, "$")
	if len(x) != len(y) {
		t.Fatalf("%q is not of the form of %q", a, genuine)
	}
	for i := range x {
		if i < 4 && x[i] != y[i] || len(x[i]) != len(y[i]) {
			t.Errorf("part %d is %q, of a real hash %q", i, y[i], x[i])
		}
	}
}
