package audit

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/test/await"
)

// A store that is away keeps calls out until what waits is written; nothing is
// lost. One that is broken keeps them out for good.
func TestLogGoesOnWhenTheStoreIsBack(t *testing.T) {
	away := &sallyport.Error{Code: sallyport.Unavailable, Message: "away", RetryAfter: time.Second}
	for name, tt := range map[string]struct {
		err  error
		back bool
	}{
		"away":    {away, true},
		"broken":  {errors.New("no space"), false},
		"refuses": {&sallyport.Error{Code: sallyport.Unavailable, Message: "the disk is full"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &disk{broken: tt.err}
			l := NewLog(d, LogOptions{Flush: time.Millisecond})
			for i := range 5 {
				if err := l.Append(sallyport.Entry{CallID: fmt.Sprint(i)}); err != nil && i == 0 {
					t.Fatal(err)
				}
			}
			await.That(t, "it comes", func() bool { return l.Healthy() != nil })
			if err := l.Append(sallyport.Entry{CallID: "refused"}); err == nil {
				t.Errorf("while it is away: %v", err)
			}
			d.mu.Lock()
			d.broken = nil
			d.mu.Unlock()
			await.That(t, "it comes", func() bool { n, _ := d.count(); return n > 0 })
			if tt.back {
				await.That(t, "it comes", func() bool { return l.Healthy() == nil })
			} else if l.Healthy() == nil {
				t.Error("it goes on, though an entry may be lost")
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.entries[0] != "0" {
				t.Errorf("the record begins with %q", d.entries)
			}
		})
	}
	strict := &disk{broken: away}
	l := NewLog(strict, LogOptions{Strict: true})
	defer l.Close()
	if err := l.Append(sallyport.Entry{}); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("strict, away: %v", err)
	}
	strict.broken = nil
	if err := l.Append(sallyport.Entry{}); err != nil {
		t.Errorf("strict, back: %v", err)
	}
}
