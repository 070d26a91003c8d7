package sallyport_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// What did not happen has no time: none is told of, and none is read back.
func TestUnsetTimes(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, v := range map[string]any{
		"a ticket that nobody decided":   sallyport.Ticket{ID: "t", CreatedAt: at, DecideBy: at},
		"an agent that never changed":    sallyport.Agent{ID: "a", CreatedAt: at},
		"a reservation that is not run":  sallyport.Reservation{CreatedAt: at, UpdatedAt: at},
		"a saga that waits for nothing":  sallyport.Saga{CreatedAt: at, UpdatedAt: at},
		"an attempt that has not ended":  sallyport.SagaAttempt{StartedAt: at},
		"an observation, a vote, a risk": sallyport.Ticket{CreatedAt: at, DecideBy: at, Votes: []sallyport.Vote{{At: at}}},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "0001-01-01") || !strings.Contains(string(b), "2026-05-01") {
			t.Errorf("%s: %s", name, b)
		}
	}
	var back sallyport.Ticket
	if err := json.Unmarshal([]byte(`{"id":"t"}`), &back); err != nil || !back.DecidedAt.IsZero() {
		t.Errorf("%+v, %v", back.DecidedAt, err)
	}
}
