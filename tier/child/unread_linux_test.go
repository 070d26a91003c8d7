package child_test

import (
	"os"
	"testing"

	"sallyport.dev/sallyport/tier/child"
)

func TestUnread(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, want := range []int{0, 5, 3} {
		switch i {
		case 1:
			_, err = w.WriteString("hello")
		case 2:
			_, err = r.Read(make([]byte, 2))
		}
		if got := child.Unread(w); err != nil || got != want {
			t.Errorf("step %d: %d, %v; want %d", i, got, err, want)
		}
	}
	w.Close()
	if got := child.Unread(w); got != -1 {
		t.Errorf("of a closed pipe: %d", got)
	}
}
