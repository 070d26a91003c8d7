package task_test

import (
	"fmt"
	"hash/crc64"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/mcpserver/task"
)

func code(text string) string {
	return fmt.Sprintf("%016x", crc64.Checksum([]byte(text), crc64.MakeTable(crc64.ECMA)))
}

// The id of a task is good only as it was given: the time in it is part of it.
func TestAnIDIsGoodAsItWasGiven(t *testing.T) {
	for _, c := range []task.Code{code, nil} {
		given := task.Task{Of: "tkt_a", Made: time.UnixMilli(1_790_000_000_123), Code: c}
		id := given.ID()
		if got, ok := task.Read(id, c); !ok || got.Of != given.Of || !got.Made.Equal(given.Made) {
			t.Errorf("%s is not known: %+v", id, got)
		}
		if c == nil {
			continue
		}
		for _, other := range []string{"", ".", "tkt_a", id + "A", id + ".", " " + id, strings.ToUpper(id), strings.Replace(id, ".", ".0", 1), strings.Replace(id, ".", ".-", 1), strings.Replace(id, ".", ".+", 1), strings.Repeat("x", 3000) + id} {
			if _, ok := task.Read(other, c); ok {
				t.Errorf("%.80s is taken", other)
			}
		}
		for i := range id {
			for _, x := range "0aZ._" {
				other := id[:i] + string(x) + id[i+1:]
				if _, ok := task.Read(other, c); ok && other != id {
					t.Errorf("%s is taken for %s", other, id)
				}
			}
		}
	}
}
