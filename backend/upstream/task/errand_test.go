package task_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sallyport.dev/sallyport/backend/upstream/task"
	"sallyport.dev/sallyport/wire"
)

// A server that cannot be reached is given time, whatever it is asked for: the result of
// a task that has ended is not lost by a restart. However the pauses between the tries
// fall, the time is the same.
func TestUnreachableServersAreGivenTime(t *testing.T) {
	for _, what := range []string{"tasks/get", "tasks/result"} {
		synctest.Test(t, func(t *testing.T) {
			back, tries := time.Now().Add(25*time.Second), 0
			e := &task.Errand{Server: "s", Legacy: true, Send: func(_ context.Context, method, _ string, _ json.RawMessage) (wire.Message, error) {
				if method == what && time.Now().Before(back) {
					tries++
					return wire.Message{}, errors.New("connection refused")
				}
				return wire.Message{Result: json.RawMessage(`{"taskId":"tk","status":"completed","content":[]}`)}, nil
			}}
			st, _, err := task.Made(json.RawMessage(`{"task":{"taskId":"tk","status":"working","pollInterval":1}}`), true)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Follow(t.Context(), st); err != nil || tries > 100 {
				t.Errorf("%s: %v after %d tries", what, err, tries)
			}
		})
	}
}
