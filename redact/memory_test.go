package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact"
)

const splitSecret = "CANARY-9f2Kq8ZxT4vLmW7cRb3N"

// A listener is a reader of one sanitiser.
type listener struct {
	guard  *redact.Sanitiser
	reader string
}

func newListener(values ...string) *listener {
	var known []redact.Known
	for i, v := range values {
		known = append(known, redact.Known{Name: fmt.Sprint("k", i), Value: v})
	}
	return &listener{guard: redact.New(redact.Options{Known: func() []redact.Known { return known }}), reader: "acme\x00one"}
}

func (s *listener) result(t *testing.T, text string) (clean string, findings []string) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}})
	if err != nil {
		t.Fatal(err)
	}
	out, _, findings, err := s.guard.Result(s.reader, sallyport.Tool{Name: "t"}, sallyport.Output{Content: raw})
	if err != nil {
		t.Fatal(err)
	}
	return string(out), findings
}

// leaves reports whether the pieces all came through.
func leaves(cleaned, pieces []string) bool {
	for i, p := range pieces {
		if !strings.Contains(cleaned[i], p) {
			return false
		}
	}
	return true
}

// A stored secret that is cut in two or in three, at any byte, does not leave
// whole in results that follow each other, in whatever order, with others between.
func TestTO19_SecretsAcrossResults(t *testing.T) {
	n := len(splitSecret)
	var cuts [][]int
	for i := 1; i < n; i++ {
		cuts = append(cuts, []int{i})
		for j := i + 1; j < n; j++ {
			cuts = append(cuts, []int{i, j})
		}
	}
	order := rand.New(rand.NewPCG(1, 2))
	s := newListener(splitSecret)
	for i, cut := range cuts {
		s.reader = fmt.Sprint("acme\x00", i)
		pieces, from := []string{}, 0
		for _, c := range append(cut, n) {
			pieces, from = append(pieces, splitSecret[from:c]), c
		}
		order.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
		cleaned, flagged := []string{}, false
		for i, p := range pieces {
			clean, findings := s.result(t, fmt.Sprintf("part %d is [%s], and so on", i, p))
			cleaned = append(cleaned, clean)
			flagged = flagged || strings.Contains(strings.Join(findings, " "), "in parts over several results")
			if _, f := s.result(t, "nothing to see here"); len(f) > 0 {
				t.Fatalf("a harmless result: %q", f)
			}
		}
		if want := bracketed(pieces); leaves(cleaned, want) || !flagged {
			t.Errorf("cut at %v: %q left, flagged %v", cut, cleaned, flagged)
		}
	}
	// The control: who remembers nothing lets them through.
	s.reader = ""
	a, _ := s.result(t, "["+splitSecret[:13]+"]")
	if b, _ := s.result(t, "["+splitSecret[13:]+"]"); !leaves([]string{a, b}, bracketed([]string{splitSecret[:13], splitSecret[13:]})) {
		t.Errorf("control: without a reader: %q %q", a, b)
	}
}

func bracketed(pieces []string) (all []string) {
	for _, p := range pieces {
		all = append(all, "["+p+"]")
	}
	return all
}

// Streams, notices and results of one reader are looked at together; those of
// another reader are not.
func TestTO19_SecretsAcrossStreamsAndNotices(t *testing.T) {
	head, tail := splitSecret[:12], splitSecret[12:]
	stream := func(s *listener, text string) string { return s.guard.Stream(s.reader)([]byte(text + "\n")) }
	notice := func(s *listener, text string) string {
		return string(s.guard.Notice(s.reader, sallyport.Notice{Method: "notifications/progress", Params: json.RawMessage(fmt.Sprintf(`{"message":%q}`, text))}).Params)
	}
	result := func(s *listener, text string) string { out, _ := s.result(t, text); return out }
	ways := map[string]func(*listener, string) string{"stream": stream, "notice": notice, "result": result}
	s := newListener(splitSecret)
	for first, one := range ways {
		for second, two := range ways {
			s.reader = "acme\x00" + first + second
			if got := one(s, "a "+head+" b"); !strings.Contains(got, head) {
				t.Fatalf("control: %s: the first part did not come through: %q", first, got)
			}
			if got := two(s, "c "+tail+" d"); strings.Contains(got, tail) || !strings.Contains(got, "part of stored secret k0") {
				t.Errorf("%s, then %s: %q", first, second, got)
			}
			if again := two(s, "c "+tail+" d"); strings.Contains(again, tail) {
				t.Errorf("%s, then %s, again: %q", first, second, again)
			}
			s.reader = "acme\x00other"
			if got := two(s, "c "+tail+" d"); !strings.Contains(got, tail) {
				t.Errorf("%s, then %s to another reader, who got nothing before: %q", first, second, got)
			}
		}
	}
	// Within one stream, with lines between.
	s.reader = "acme\x00stream"
	next := s.guard.Stream(s.reader)
	if got := next([]byte("x " + head + "\n")); !strings.Contains(got, head) {
		t.Fatalf("control: %q", got)
	}
	next([]byte(strings.Repeat("a line of no interest\n", 2000)))
	if got := next([]byte("y " + tail + "\n")); strings.Contains(got, tail) {
		t.Errorf("in one stream: %q", got)
	}
}

// A reader who asks for much cannot make the memory forget, or grow.
func TestTO19_MemoryHolds(t *testing.T) {
	s := newListener(splitSecret)
	head, tail := splitSecret[:14], splitSecret[14:]
	s.result(t, head)
	for i := range len(splitSecret) - 5 { // all short parts of it, which crowd the memory
		s.result(t, "-"+splitSecret[i:i+5]+"-")
	}
	for i := range 3000 {
		s.reader = fmt.Sprint("reader ", i%900)
		s.result(t, "other: "+splitSecret[3:9])
	}
	s.reader = "acme\x00one"
	if got, _ := s.result(t, tail); strings.Contains(got, tail) {
		t.Errorf("after a flood: %q", got)
	}
}

// What is no part of a secret, or only looks a little like one, stays as it is.
func TestMemoryIsNoAlarm(t *testing.T) {
	s := newListener(splitSecret, "postgres://orders:Vq7x-2mPz@db.internal:5432/orders", "hunter2hunter2")
	noise := rand.New(rand.NewPCG(7, 7))
	for i := range 200 {
		b := make([]byte, 3000)
		for j := range b {
			b[j] = byte(noise.IntN(256))
		}
		text := fmt.Sprintf("line %d of CANARY- at postgres://orders on db.internal:5432/orders %s", i, base64.StdEncoding.EncodeToString(b))
		if got, findings := s.result(t, text); !strings.Contains(got, text) || len(findings) > 0 {
			t.Fatalf("result %d: %q", i, findings)
		}
	}
	// The control: the rest of the address is masked.
	if got, findings := s.result(t, "it ends in :Vq7x-2mPz@"); strings.Contains(got, "Vq7x-2mPz") || len(findings) == 0 {
		t.Errorf("control: %q %q", got, findings)
	}
}
