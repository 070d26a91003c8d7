package sqlite_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/sqlite"
)

func benchStore(b *testing.B, heads bool, opts ...relational.Option) *sqlite.Store {
	b.Helper()
	dir := b.TempDir()
	key, err := audit.CreateKey(dir)
	if err != nil {
		b.Fatal(err)
	}
	path := ""
	if heads {
		path = dir + "/heads"
	}
	seal, err := audit.NewSealer(key, path)
	if err != nil {
		b.Fatal(err)
	}
	s, err := sqlite.Open(dir+"/sallyport.db", seal, opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// cpu reports processor time beside wall time, which a loaded machine stretches.
func cpu(b *testing.B) {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	start := used()
	b.Cleanup(func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") })
}

func beginFinish(s *sqlite.Store, k string) error {
	bg := beginOf(k, "")
	fence, err := s.Begin(context.Background(), bg)
	if err != nil {
		return err
	}
	return s.Finish(context.Background(), gateway.Finish{Key: bg.Key, Fence: fence, State: sallyport.Done, Output: []byte(`{"content":[]}`),
		Outcome: sallyport.Entry{Tenant: "t", Kind: sallyport.EntryOutcome, CallID: k, Payload: []byte(`{"call_id":"x"}`)}})
}

// The two commits of a mutating call.
func BenchmarkBeginFinish(b *testing.B) {
	for _, heads := range []bool{false, true} {
		b.Run(fmt.Sprintf("heads=%v", heads), func(b *testing.B) {
			s := benchStore(b, heads)
			i := 0
			cpu(b)
			for b.Loop() {
				if err := beginFinish(s, fmt.Sprint(i)); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkBeginFinishParallel(b *testing.B) {
	s := benchStore(b, true)
	var n atomic.Int64
	b.SetParallelism(16)
	cpu(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := beginFinish(s, fmt.Sprint(n.Add(1))); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkFind(b *testing.B) {
	s := benchStore(b, false)
	if err := beginFinish(s, "k"); err != nil {
		b.Fatal(err)
	}
	key := beginOf("k", "").Key
	cpu(b)
	for b.Loop() {
		if r, err := s.Find(context.Background(), key); r == nil || err != nil {
			b.Fatal(r, err)
		}
	}
}

// What a read-only call costs the record, once its entry is flushed with others.
func BenchmarkJournal(b *testing.B) {
	s := benchStore(b, true)
	l := audit.NewLog(s, audit.LogOptions{Block: time.Minute})
	e := sallyport.Entry{Tenant: "t", Kind: sallyport.EntryOutcome, CallID: "c", Payload: []byte(`{"call_id":"c","path":["receive"]}`)}
	cpu(b)
	for b.Loop() {
		if err := l.Append(e); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
