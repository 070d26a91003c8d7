package oauth

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// A full cache forgets expired tokens first, and is never larger than its bound.
func TestTokenCacheIsBounded(t *testing.T) {
	var c tokenCache
	start := time.Unix(1_700_000_000, 0)
	add := func(i int, now time.Time) {
		var sum [sha256.Size]byte
		binary.BigEndian.PutUint64(sum[:], uint64(i))
		c.put(sum, &verified{principal: sallyport.Principal{Expires: now.Add(Lifetime)}}, now)
	}
	for i := range 2 * verifiedTokens {
		add(i, start)
		if len(c.m) > verifiedTokens {
			t.Fatalf("%d tokens remembered", len(c.m))
		}
	}
	for i := range verifiedTokens {
		add(1<<32+i, start.Add(time.Hour))
	}
	for i := range verifiedTokens {
		var sum [sha256.Size]byte
		binary.BigEndian.PutUint64(sum[:], uint64(1<<32+i))
		if c.get(sum) == nil {
			t.Fatalf("token %d of those still good was forgotten before the expired ones", i)
		}
	}
}
