package known

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A Memory puts together what leaves in several results. For each reader it keeps
// which pieces of which secrets have gone out lately, as places in the value; the
// piece that would complete a secret is to be masked. It is safe for concurrent
// use, and bounded: of many pieces the longest are kept, of many readers the
// latest.
type Memory struct {
	Clock func() time.Time // nil means time.Now

	mu      sync.Mutex
	readers map[string]*reader
	index   *grams
	of      []Secret // that the index has
}

const (
	gram       = 3         // bytes by which pieces are found
	shortEdge  = 3         // bytes of a piece at either end of the value, at least
	shortInner = 4         // and of any other
	fewPieces  = 4         // that make up a value
	keptPieces = 64        // of one secret, for one reader
	keptFor    = time.Hour // after they went out
	maxReaders = 1024
	maxPlaces  = 16      // of one gram
	maxValue   = 1 << 16 // bytes; places are 16 bits
)

// spare is how many bytes of a value may be missing where it counts as complete:
// pieces too short to be found are no more than that, where a value is cut in two
// or three.
func spare(n int) int {
	if n < 16 {
		return 1
	}
	return shortEdge + shortInner - 2
}

// A piece is a part of a value: where it begins and ends in it.
type piece struct {
	start, end uint16
	fresh      bool // not gone out yet
	at         time.Time
}

func (p piece) size() int { return int(p.end) - int(p.start) }

type reader struct {
	used   time.Time
	pieces map[string][]piece // by value
}

// Rest returns what must be masked in a text so that it does not complete a
// secret for a reader, and the names of those secrets. The text is taken to go
// out so masked.
func (m *Memory) Rest(who, text string, secrets []Secret) (parts []Secret, whose []string) {
	if len(secrets) == 0 || len(text) < gram {
		return nil, nil
	}
	found := m.grams(secrets).find(text)
	if len(found) == 0 {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.reader(who)
	for i, fresh := range found {
		k := secrets[i]
		masked, rest := complete(k.Value, r.pieces[k.Value], fresh)
		for _, p := range masked {
			parts = append(parts, Secret{k.Name, k.Value[p.start:p.end]})
		}
		if len(masked) > 0 && !slices.Contains(whose, k.Name) {
			whose = append(whose, k.Name)
		}
		r.pieces[k.Value] = keep(rest, r.used)
	}
	slices.Sort(whose)
	return parts, whose
}

// May tells whether a part of a secret can stand in a text.
func (m *Memory) May(text string, secrets []Secret) bool {
	return len(m.grams(secrets).find(text)) > 0
}

func (m *Memory) grams(secrets []Secret) *grams {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.index == nil || !slices.Equal(m.of, secrets) {
		m.of, m.index = slices.Clone(secrets), newGrams(secrets)
	}
	return m.index
}

// reader finds what is kept for a reader, without what is too old.
// Preconditions: m.mu is held.
func (m *Memory) reader(who string) *reader {
	now := time.Now()
	if m.Clock != nil {
		now = m.Clock()
	}
	r := m.readers[who]
	if r == nil {
		if m.readers == nil {
			m.readers = map[string]*reader{}
		}
		if len(m.readers) >= maxReaders {
			oldest := ""
			for id, other := range m.readers {
				if oldest == "" || other.used.Before(m.readers[oldest].used) {
					oldest = id
				}
			}
			delete(m.readers, oldest)
		}
		r = &reader{pieces: map[string][]piece{}}
		m.readers[who] = r
	}
	r.used = now
	for value, all := range r.pieces {
		all = slices.DeleteFunc(all, func(p piece) bool { return now.Sub(p.at) > keptFor })
		if r.pieces[value] = all; len(all) == 0 {
			delete(r.pieces, value)
		}
	}
	return r
}

// complete picks the fresh pieces without which a value stays incomplete; rest is
// what has gone out then.
func complete(value string, old, fresh []piece) (masked, rest []piece) {
	rest = append(slices.Clone(old), fresh...)
	for {
		way := cover(len(value), rest)
		took := false
		for _, p := range way {
			if p.fresh {
				masked, took = append(masked, p), true
				rest = slices.DeleteFunc(rest, func(q piece) bool { return q == p })
			}
		}
		if !took {
			return masked, rest
		}
	}
}

// cover finds a few pieces that make up a value of n bytes, but for what may be
// missing; nil if there are none.
func cover(n int, all []piece) []piece {
	slices.SortFunc(all, func(a, b piece) int { return int(a.end) - int(b.end) })
	type step struct{ missing, before int }
	best := make([][]step, fewPieces) // by number of pieces before, by last piece
	for k := range best {
		best[k] = make([]step, len(all))
		for j, p := range all {
			s := step{int(p.start), -1}
			if k > 0 {
				s = best[k-1][j]
				for i, q := range all[:j] {
					if gap := best[k-1][i].missing + max(0, int(p.start)-int(q.end)); gap < s.missing {
						s = step{gap, i}
					}
				}
			}
			best[k][j] = s
			if s.missing+n-int(p.end) <= spare(n) {
				way := []piece{p}
				for at := s.before; at >= 0 && k > 0; k-- {
					way = append(way, all[at])
					at = best[k-1][at].before
				}
				return way
			}
		}
	}
	return nil
}

// keep drops pieces within others, and the shortest of too many.
func keep(all []piece, now time.Time) []piece {
	slices.SortStableFunc(all, func(a, b piece) int { return b.size() - a.size() })
	var out []piece
	for _, p := range all {
		if p.fresh {
			p.fresh, p.at = false, now
		}
		within := slices.IndexFunc(out, func(q piece) bool { return q.start <= p.start && p.end <= q.end })
		switch {
		case within >= 0 && p.at.After(out[within].at) && p.size() == out[within].size():
			out[within].at = p.at
		case within < 0 && len(out) < keptPieces:
			out = append(out, p)
		}
	}
	return out
}

// grams find pieces of secrets in one pass over a text.
type grams struct {
	secrets []Secret
	bits    [1 << 12]uint64 // a bit for each hash of a gram
	places  map[uint32][]place
}

type place struct {
	secret int
	at     int
}

func gramBit(g uint32) uint32 { return g * 0x9e3779b1 >> 14 }

func newGrams(secrets []Secret) *grams {
	x := &grams{secrets: secrets, places: map[uint32][]place{}}
	for i, k := range secrets {
		if len(k.Value) < Min || len(k.Value) >= maxValue {
			continue
		}
		for at := 0; at+gram <= len(k.Value); at++ {
			g := gramAt(k.Value, at)
			if all := x.places[g]; len(all) < maxPlaces {
				x.places[g] = append(all, place{i, at})
				x.bits[gramBit(g)/64] |= 1 << (gramBit(g) % 64)
			}
		}
	}
	return x
}

func gramAt(s string, i int) uint32 {
	return uint32(s[i])<<16 | uint32(s[i+1])<<8 | uint32(s[i+2])
}

// find returns the pieces that stand in a text, by secret. A whole value is none:
// that is masked anyway.
func (x *grams) find(text string) map[int][]piece {
	var found map[int][]piece
	for p := 0; p+gram <= len(text); p++ {
		g := gramAt(text, p)
		if b := gramBit(g); x.bits[b/64]&(1<<(b%64)) == 0 {
			continue
		}
		for _, at := range x.places[g] {
			v := x.secrets[at.secret].Value
			if at.at > 0 && p > 0 && v[at.at-1] == text[p-1] {
				continue // it began before
			}
			n := gram
			for at.at+n < len(v) && p+n < len(text) && v[at.at+n] == text[p+n] {
				n++
			}
			edge := at.at == 0 || at.at+n == len(v)
			if n == len(v) || n < shortInner && !edge {
				continue
			}
			if found == nil {
				found = map[int][]piece{}
			}
			got := piece{start: uint16(at.at), end: uint16(at.at + n), fresh: true}
			if all := found[at.secret]; len(all) < keptPieces && !slices.Contains(all, got) {
				found[at.secret] = append(all, got)
			}
		}
	}
	return found
}

// Texts are a document's texts, each apart from the next.
func Texts(raw []byte) string {
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	var b strings.Builder
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return b.String()
		}
		if tok.Kind() == '"' {
			b.WriteString(tok.String())
			b.WriteByte(0)
		}
	}
}
