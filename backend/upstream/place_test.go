package upstream

import (
	"testing"

	"sallyport.dev/sallyport"
)

// Wherever a task is asked for, its call has a desk on that connection only, and none
// once it has ended, even if the word that cancels it comes to another connection.
func TestPlacesAreLeft(t *testing.T) {
	t.Parallel()
	first, second, third := &session{}, &session{}, &session{}
	job := sallyport.Job{}
	own := first.room.Open(t.Context(), job)
	at := &place{se: first, desk: own}
	at.onto(t.Context(), first, second, job, "tk")
	if second.room.Empty() {
		t.Fatal("it has no desk where it is asked for")
	}
	at.onto(t.Context(), second, third, job, "tk")
	if !second.room.Empty() || third.room.Empty() {
		t.Error("it still has a desk where it was")
	}
	at.leave()
	at.onto(t.Context(), third, first, job, "tk")
	own.Close()
	if !third.room.Empty() || !first.room.Empty() {
		t.Error("a call that has ended has a desk")
	}
}
