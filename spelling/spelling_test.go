package spelling

import (
	"strings"
	"testing"
)

func TestClosest(t *testing.T) {
	long := strings.Repeat("x", 100)
	known := []string{"listen", "limits", "log", "approvals", "to", long}
	for word, want := range map[string]string{
		"lisen": "listen", "listne": "listen", "limts": "limits", "lgo": "log", "aprovls": "approvals",
		"": "", "xy": "", "servers": "", "listen": "listen", long[1:]: "",
	} {
		if got := Closest(word, known); got != want {
			t.Errorf("%.20q: %q, want %q", word, got, want)
		}
	}
}
