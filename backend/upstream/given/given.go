// Package given keeps what a server is given and what may change while it runs: values
// that hold stored secrets. They are read again as soon as they are a second old, so a
// secret that was changed counts from the next call on, whichever gateway changed it.
package given

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
)

// Values are what a server is given.
type Values struct {
	Env    []string             // of a program, "NAME=value"
	Header http.Header          // of each request
	Inject []sallyport.Injected // to what a program in a sandbox sends
}

// A Source reads values. Code NotFound means that a secret is not there any more.
type Source func(context.Context) (Values, error)

const (
	age  = time.Second     // that values reach
	wait = 5 * time.Second // for the source
)

// A Keeper is safe for concurrent use.
type Keeper struct {
	read Source
	old  atomic.Bool // they are to be read again, however young they are

	mu     sync.Mutex // guards what follows, where there is a source; held while it is read
	values Values
	turn   int // counts how often they changed
	at     time.Time
}

// New returns a keeper of values that a source gave once; without one they stay as they
// are.
func New(v Values, read Source) *Keeper { return &Keeper{read: read, values: v} }

// Now returns the values, and which they are: another number, other values. Where they
// cannot be read at the moment, the last ones count; a secret that was removed is an
// error.
func (k *Keeper) Now(ctx context.Context) (v Values, turn int, err error) {
	if k.read == nil {
		return k.values, 0, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.old.Load() && time.Since(k.at) < age {
		return k.values, k.turn, nil
	}
	k.old.Store(false)                                                   // before: what is changed while they are read counts the next time
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait) // others wait for it, too
	defer cancel()
	switch v, err = k.read(ctx); {
	case sallyport.CodeOf(err) == sallyport.NotFound:
		return Values{}, k.turn, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Execute, Err: errors.Join(err, sallyport.ErrNotExecuted),
			Message: "a secret that the server needs is not stored any more", Hint: "the operator sets it: sallyport secrets set; servers list names the server",
		}
	case err == nil && !reflect.DeepEqual(v, k.values):
		k.values, k.turn = v, k.turn+1
	}
	k.at = time.Now()
	return k.values, k.turn, nil
}

// Forget has values read again the next time. It waits for nobody who reads them.
func (k *Keeper) Forget() { k.old.Store(true) }

// Newer reports whether there are others than those of a turn, now.
func (k *Keeper) Newer(ctx context.Context, turn int) bool {
	k.Forget()
	_, now, err := k.Now(ctx)
	return err == nil && now != turn
}
