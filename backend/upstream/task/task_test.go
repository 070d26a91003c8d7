package task_test

import (
	"encoding/json"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream/task"
	"sallyport.dev/sallyport/wire"
)

func TestMade(t *testing.T) {
	for in, want := range map[string]struct {
		legacy, made, wrong bool
		poll                time.Duration
	}{
		`{"resultType":"task","taskId":"a","status":"working","pollIntervalMs":1500}`:                                {made: true, poll: 1500 * time.Millisecond},
		`{"resultType":"task","taskId":"a","status":"working","pollIntervalMs":1e300}`:                               {made: true, poll: time.Minute},
		`{"resultType":"task","taskId":"a","status":"working","pollIntervalMs":-1}`:                                  {made: true},
		`{"resultType":"task","taskId":"a","status":"completed"}`:                                                    {made: true},
		`{"resultType":"task","taskId":"","status":"working"}`:                                                       {made: true, wrong: true},
		`{"resultType":"task","taskId":7,"status":"working"}`:                                                        {made: true, wrong: true},
		`{"resultType":"task","taskId":"a","status":"x"}`:                                                            {made: true, wrong: true},
		`{"resultType":"task","taskId":"a","status":"input_required","inputRequests":{"k":{"method":"tools/call"}}}`: {made: true, wrong: true},
		`{"resultType":"complete","taskId":"a","status":"working"}`:                                                  {},
		`{"task":{"taskId":"a","status":"working","pollInterval":2}}`:                                                {legacy: true, made: true, poll: 2 * time.Millisecond},
		`{"task":{"status":"working"}}`:                                                                              {legacy: true, made: true, wrong: true},
		`{"task":"a"}`:                                                                                               {legacy: true},
		`{"resultType":"task","taskId":"a","status":"working"}`:                                                      {legacy: true},
	} {
		st, made, err := task.Made(json.RawMessage(in), want.legacy)
		if made != want.made || (err != nil) != want.wrong || err == nil && st.Poll != want.poll {
			t.Errorf("%s: %+v, %v, %v", in, st, made, err)
		}
	}
}

// Whatever a server says of a task, it has an id that can stand in a header, a status
// that is known, and an interval within bounds.
func FuzzMade(f *testing.F) {
	f.Add(`{"resultType":"task","taskId":"a","status":"input_required","inputRequests":{"k":{"method":"roots/list"}},"pollIntervalMs":5}`, false)
	f.Add(`{"task":{"taskId":"é\n","status":"failed"}}`, true)
	f.Fuzz(func(t *testing.T, in string, legacy bool) {
		if wire.Validate([]byte(in)) != nil {
			return
		}
		st, made, err := task.Made(json.RawMessage(in), legacy)
		if !made || err != nil {
			return
		}
		if back, err := wire.DecodeHeader(wire.EncodeHeader(st.ID)); err != nil || back != st.ID || st.ID == "" || st.Status == "" || st.Poll < 0 || st.Poll > time.Minute {
			t.Errorf("%s: %+v, %v", in, st, err)
		}
	})
}
