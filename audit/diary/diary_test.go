package diary_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit/diary"
)

type book struct {
	now     time.Time
	refuse  error
	entries []sallyport.ServerReport
	bytes   int
	d       *diary.Diary
}

func newBook(t *testing.T) *book {
	b := &book{now: time.Unix(1e9, 0)}
	b.d = diary.New(diary.Options{
		Tenant: "acme", Clock: func() time.Time { return b.now },
		Clean: func(s string) string { return strings.ReplaceAll(s, "s3cret", "***") },
		Append: func(e sallyport.Entry) error {
			var r sallyport.ServerReport
			if err := json.Unmarshal(e.Payload, &r); err != nil || e.Kind != sallyport.EntryServer || e.Tenant != "acme" {
				t.Errorf("entry %+v, %v", e, err)
			}
			if b.refuse == nil {
				b.entries, b.bytes = append(b.entries, r), b.bytes+len(e.Payload)
			}
			return b.refuse
		},
	})
	t.Cleanup(func() { b.d.Close() }) //nolint:errcheck // it is nil
	return b
}

func to(target string, n int) []sallyport.Connection {
	return []sallyport.Connection{{Target: target, Reason: "not_listed", Count: n}}
}

// What is new is written soon, what is repeated is added up, and what could not be
// written is written later.
func TestDiary(t *testing.T) {
	b := newBook(t)
	b.d.Note("one", []sallyport.Connection{{Target: "api.test:443", Allowed: true, Count: 2, Bytes: 10}, {Target: "s3cret.evil.test:443", Reason: "not_listed", Count: 1}}, nil)
	b.d.Write(false)
	if len(b.entries) != 1 || len(b.entries[0].Connections) != 2 || b.entries[0].Server != "one" || b.entries[0].Connections[0].Target != "***.evil.test:443" {
		t.Fatalf("%+v", b.entries)
	}
	for range 9 {
		b.now = b.now.Add(time.Minute)
		b.d.Note("one", []sallyport.Connection{{Target: "api.test:443", Allowed: true, Count: 2, Bytes: 10}}, nil)
		b.d.Write(false)
	}
	if len(b.entries) != 1 {
		t.Fatalf("repetitions are written at once: %+v", b.entries)
	}
	b.d.Note("one", nil, []string{"state"})
	b.refuse = errors.New("away")
	b.d.Write(false)
	b.refuse = nil
	b.d.Write(false)
	if len(b.entries) != 2 || b.entries[1].Connections[0].Count != 18 || b.entries[1].Connections[0].Bytes != 90 || b.entries[1].LimitsHit[0] != "state" {
		t.Fatalf("%+v", b.entries)
	}
	b.d.Note("one", to("late.test:1", 1), nil)
	b.d.Write(false)
	if len(b.entries) != 2 {
		t.Fatalf("two entries at once: %+v", b.entries)
	}
	b.d.Write(true)
	if len(b.entries) != 3 {
		t.Fatalf("what was left was not written at the end")
	}
}

// A server that names new targets all the time cannot flood the record, and none
// of its attempts is uncounted.
func TestDiaryFlood(t *testing.T) {
	b := newBook(t)
	total := 0
	for minute := range 120 {
		for i := range 500 {
			b.d.Note("flood", to(fmt.Sprintf("h%d-%d.%s:443", minute, i, strings.Repeat("x", 1000)), 1), nil)
			total++
		}
		b.now = b.now.Add(time.Minute)
		b.d.Write(false)
	}
	b.d.Write(true)
	named, counted := 0, 0
	for _, e := range b.entries {
		named += len(e.Connections)
		for _, c := range e.Connections {
			counted += c.Count
		}
	}
	if len(b.entries) > 121 || named > 2*65+len(b.entries) || b.bytes > 200<<10 {
		t.Errorf("%d entries with %d rows, %d bytes, in two hours", len(b.entries), named, b.bytes)
	}
	if counted != total {
		t.Errorf("%d of %d attempts are counted", counted, total)
	}
}
