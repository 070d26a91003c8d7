package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/test/await"
)

// Every field of an entry is in its leaf, and no two split the same way.
func TestLeaf(t *testing.T) {
	base := Row{Writer: "w", Seq: 1, Tenant: "t", Time: time.Unix(1, 2), Kind: "k", CallID: "c", Commitment: [32]byte{1}}
	seen := map[string]string{string(base.Leaf()): "base"}
	for name, edit := range map[string]func(*Row){
		"writer": func(r *Row) { r.Writer = "x" }, "seq": func(r *Row) { r.Seq = 2 }, "tenant": func(r *Row) { r.Tenant = "u" },
		"time": func(r *Row) { r.Time = time.Unix(1, 3) }, "kind": func(r *Row) { r.Kind = "l" }, "call": func(r *Row) { r.CallID = "d" },
		"commitment": func(r *Row) { r.Commitment[31] = 1 }, "shift": func(r *Row) { r.Tenant, r.Writer = "tw", "" },
		"shift back": func(r *Row) { r.Kind, r.CallID = "kc", "" },
	} {
		r := base
		edit(&r)
		if other, twice := seen[string(r.Leaf())]; twice {
			t.Errorf("%s gives the same leaf as %s", name, other)
		}
		seen[string(r.Leaf())] = name
	}
	erased := base
	erased.Payload, erased.Salt, erased.Erased = nil, nil, 9
	if string(erased.Leaf()) != string(base.Leaf()) {
		t.Error("an erasure changes the leaf")
	}
}

// The edge gives the hashes and the roots that tlog gives with the whole tree.
func TestEdge(t *testing.T) {
	var all []tlog.Hash
	reader := tlog.HashReaderFunc(func(idx []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(idx))
		for i, n := range idx {
			out[i] = all[n]
		}
		return out, nil
	})
	var e edge
	for n := int64(0); n < 300; n++ {
		leaf := fmt.Appendf(nil, "leaf %d", n)
		want, err := tlog.StoredHashes(n, leaf, reader)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.add(tlog.RecordHash(leaf))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("size %d: %v, %v; want %v", n, got, err, want)
		}
		all = append(all, want...)
		root, err := tlog.TreeHash(n+1, reader)
		if mine, err2 := e.root(); err != nil || err2 != nil || mine != root {
			t.Fatalf("root of %d: %v %v", n+1, err, err2)
		}
		read, err := readEdge(n+1, reader)
		if err != nil || fmt.Sprint(read) != fmt.Sprint(e) {
			t.Fatalf("edge of %d read back: %v, %v", n+1, read, err)
		}
	}
}

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	k, err := CreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateKey(dir); err == nil {
		t.Error("a key was overwritten")
	}
	got, err := LoadKey(dir)
	if err != nil || got.Writer() != k.Writer() || got.Public() != k.Public() {
		t.Errorf("LoadKey = %v, %v", got, err)
	}
	pub, err := LoadPublicKeys(dir)
	if err != nil || len(pub) != 1 || pub[0] != k.Public() {
		t.Errorf("LoadPublicKeys = %v, %v", pub, err)
	}
	other, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, publicFile), []byte(other.Public()), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKey(dir); err == nil || !strings.Contains(err.Error(), "belong together") {
		t.Errorf("a foreign public key: %v", err)
	}
	if err := os.Chmod(filepath.Join(dir, keyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKey(dir); err == nil || !strings.Contains(err.Error(), "readable by others") {
		t.Errorf("a key that others can read: %v", err)
	}
}

func TestHeads(t *testing.T) {
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	vs, err := newVerifiers([]string{k.Public()})
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for i := range int64(3) {
		msg, err := k.sign(i, tlog.Hash{byte(i)}, time.Unix(i, 0))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, msg...)
	}
	for cut := 0; cut < len(text); cut += 3 {
		whole, torn := splitHeads(text[:len(text)-cut])
		if cut == 0 && (len(whole) != 3 || torn != 0) || len(whole) > 3 || len(whole)+torn > 3 {
			t.Fatalf("cut by %d: %d heads, %d torn", cut, len(whole), torn)
		}
		// what a process that comes after the crash makes of it
		path := filepath.Join(t.TempDir(), "heads")
		if err := os.WriteFile(path, text[:len(text)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := openHeadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.publish(2, text[2*len(text)/3:]); err != nil {
			t.Fatal(err)
		}
		last, err := f.last(func(h head) bool { return vs.check(h) == nil })
		if err != nil || last.size != 2 {
			t.Fatalf("cut by %d: the last head is %+v, %v", cut, last, err)
		}
		f.f.Close()
		mended, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		good := 0
		heads, _ := splitHeads(mended)
		for _, n := range heads {
			if h, err := parseHead(n); err == nil && vs.check(h) == nil {
				good++
			}
		}
		if want := (len(text)-cut+1)/(len(text)/3) + 1; good != want {
			t.Fatalf("cut by %d: %d good heads after another one, want %d", cut, good, want)
		}
	}
}

func FuzzHeads(f *testing.F) {
	k, err := NewKey()
	if err != nil {
		f.Fatal(err)
	}
	msg, err := k.sign(7, tlog.Hash{}, time.Unix(1, 0))
	if err != nil {
		f.Fatal(err)
	}
	vs, err := newVerifiers([]string{k.Public()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(msg)
	f.Add([]byte("sallyport.dev/audit/x\n1\n\n\n\n— x y\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		notes, _ := splitHeads(in)
		for _, n := range notes {
			if h, err := parseHead(n); err == nil && vs.check(h) == nil && h.size != 7 {
				t.Errorf("a forged head of size %d passed: %q", h.size, n)
			}
		}
	})
}

// disk is an Appender that a test can break or slow down.
type disk struct {
	mu      sync.Mutex
	entries []string
	flushes int
	broken  error
	hold    chan struct{}
	failed  error
}

func (d *disk) AppendEntries(_ context.Context, es ...sallyport.Entry) error {
	if d.hold != nil {
		<-d.hold
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return d.broken
	}
	d.flushes++
	for _, e := range es {
		d.entries = append(d.entries, e.CallID)
	}
	return nil
}

func (d *disk) Healthy() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

func (d *disk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		d.failed = err
	}
}

func (d *disk) count() (entries, flushes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.entries), d.flushes
}

func TestLogGroupsAndKeepsOrder(t *testing.T) {
	d := &disk{}
	l := NewLog(d, LogOptions{Flush: time.Hour})
	for i := range 3000 {
		if err := l.Append(sallyport.Entry{CallID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n, flushes := d.count()
	if n != 3000 || flushes > 100 {
		t.Errorf("%d entries in %d flushes", n, flushes)
	}
	for i, c := range d.entries {
		if c != fmt.Sprint(i) {
			t.Fatalf("entry %d is %s", i, c)
		}
	}
	if err := l.Append(sallyport.Entry{}); err == nil {
		t.Error("Append after Close was taken")
	}
	if err := l.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// An entry is durable soon, though nothing comes after it. (A benchmark says how soon.)
func TestLogFlushesSoon(t *testing.T) {
	d := &disk{}
	l := NewLog(d, LogOptions{})
	defer l.Close()
	if err := l.Append(sallyport.Entry{CallID: "x"}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "it is durable", func() bool { n, _ := d.count(); return n == 1 })
}

func TestLogFailure(t *testing.T) {
	d := &disk{broken: errors.New("no space")}
	l := NewLog(d, LogOptions{Flush: time.Millisecond})
	if err := l.Append(sallyport.Entry{CallID: "kept"}); err != nil {
		t.Fatal(err)
	}
	for l.Healthy() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := l.Append(sallyport.Entry{CallID: "refused"}); err == nil {
		t.Error("an unhealthy log took an entry")
	}
	d.mu.Lock()
	d.broken = nil // the disk recovers: what was taken is not lost, but the log stays unhealthy
	d.mu.Unlock()
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if n, _ := d.count(); n != 1 || l.Healthy() == nil {
		t.Errorf("%d entries kept, healthy: %v", n, l.Healthy())
	}

	d = &disk{broken: errors.New("no space")}
	l = NewLog(d, LogOptions{Flush: time.Millisecond})
	if err := l.Append(sallyport.Entry{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err == nil {
		t.Error("Close lost an entry and said nothing")
	}
}

func TestLogFullQueue(t *testing.T) {
	d := &disk{hold: make(chan struct{})}
	l := NewLog(d, LogOptions{Queue: 2, Flush: time.Millisecond, Block: 10 * time.Millisecond})
	var err error
	taken := 0
	for ; err == nil && taken < maxFlush+10; taken++ {
		err = l.Append(sallyport.Entry{})
	}
	if sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("after %d entries: %v", taken, err)
	}
	close(d.hold)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n, _ := d.count(); n != taken-1 {
		t.Errorf("%d entries written, %d taken", n, taken-1)
	}
}

func TestLogStrict(t *testing.T) {
	d := &disk{}
	l := NewLog(d, LogOptions{Strict: true})
	defer l.Close()
	if err := l.Append(sallyport.Entry{}); err != nil {
		t.Fatal(err)
	}
	if n, _ := d.count(); n != 1 {
		t.Error("a strict Append returned before its entry was durable")
	}
	d.broken = errors.New("no space")
	if err := l.Append(sallyport.Entry{}); err == nil || l.Healthy() == nil {
		t.Error("a strict Append failed and said nothing")
	}
}

// A second place that cannot be written makes the record unhealthy.
func TestHeadFileFailure(t *testing.T) {
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSealer(k, "/dev/full")
	if err != nil {
		t.Skip("no /dev/full: ", err)
	}
	s.Publish(1, []byte("x\n"))
	if err := s.Healthy(); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("Healthy = %v", err)
	}
}
