package bulk_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sallyport.dev/sallyport/limit/bulk"
)

func TestRead(t *testing.T) {
	const most = 4 * mib
	for _, tt := range []struct {
		name      string
		size      int
		announced int64
		asks      []int
		long      bool
	}{
		{"light", bulk.Light, -1, nil, false},
		{"large, and it says so", 3 * mib, 3 * mib, []int{3 * mib, 3 * mib}, false},
		{"large, and it does not", 3 * mib, -1, []int{most, 3 * mib}, false},
		{"just fits", most, -1, []int{most, most}, false},
		{"too long", most + 1, -1, []int{most}, true},
		{"too long, and it says so", most + 1, most + 1, nil, true},
		{"longer than it says", 2 * mib, 1000, []int{most, 2 * mib}, false},
		{"shorter than it says", 2 * mib, 3 * mib, []int{3 * mib, 2 * mib}, false},
	} {
		var asks []int
		b, long, err := bulk.Read(t.Context(), strings.NewReader(strings.Repeat("x", tt.size)), tt.announced, most, func(_ context.Context, n int) error {
			asks = append(asks, n)
			return nil
		})
		if err != nil || long != tt.long || !long && len(b) != tt.size || len(asks) != len(tt.asks) {
			t.Errorf("%s: %d bytes, long %t, asked for %v, %v", tt.name, len(b), long, asks, err)
			continue
		}
		for i := range asks {
			if asks[i] != tt.asks[i] {
				t.Errorf("%s: asked for %v, want %v", tt.name, asks, tt.asks)
			}
		}
	}
	stop := errors.New("nobody waits any more")
	if _, _, err := bulk.Read(t.Context(), strings.NewReader(strings.Repeat("x", 2*mib)), -1, most, func(context.Context, int) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	if b, long, err := bulk.Read(t.Context(), strings.NewReader("0123456789"), -1, 5, nil); err != nil || !long || !strings.HasPrefix(string(b), "01234") {
		t.Errorf("%q, %t, %v", b, long, err)
	}
}
