package keys

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func TestForwardedKey(t *testing.T) {
	k := sallyport.ReservationKey{Tenant: "t", Principal: "p", Tool: "x", Key: "order-1"}
	one := Forwarded(k)
	if one != Forwarded(k) || !strings.HasPrefix(one, "order-1-") || sallyport.CheckKey(one) != nil {
		t.Errorf("%q", one)
	}
	k.Key += sallyport.Scope + "carol"
	if two := Forwarded(k); two == one || !strings.HasPrefix(two, "order-1-") || sallyport.CheckKey(two) != nil {
		t.Errorf("for a user: %q", two)
	}
	k.Key = strings.Repeat("k", sallyport.MaxKey)
	long := Forwarded(k)
	k.Key = strings.Repeat("k", sallyport.MaxKey-1) + "l"
	if other := Forwarded(k); len(long) != sallyport.MaxKey || long == other || sallyport.CheckKey(long) != nil {
		t.Errorf("a long key: %q and %q", long, other)
	}
}

func TestCheck(t *testing.T) {
	for door, bad := range map[string]bool{"mcp": true, "admin": true, "saga": false, sallyport.ScriptDoor: false} {
		for _, key := range []string{"saga_x/a/do/1", "script_0123/1/4567", "a\nb"} {
			if err := Check(door, key); (err != nil) != bad {
				t.Errorf("%s, key %q: %v", door, key, err)
			}
		}
		if err := Check(door, "order-1"); err != nil {
			t.Errorf("%s: %v", door, err)
		}
	}
}

func TestScoped(t *testing.T) {
	for _, c := range [][4]string{
		{"mcp", "k", "", "k"}, {"mcp", "k", "carol", "k" + sallyport.Scope + "carol"}, {"mcp", "", "carol", ""},
		{"saga", "k", "carol", "k"}, {sallyport.ScriptDoor, "k", "carol", "k"},
	} {
		if got := Scoped(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%v: %q", c, got)
		}
	}
}
