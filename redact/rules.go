package redact

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"sallyport.dev/sallyport/redact/inject"
	"sallyport.dev/sallyport/redact/keywords"
)

// A span is a part of a text that must not get out.
type span struct {
	start, end int
	name       string // what it is, for the marker and the findings
	rank       rank   // who names it best where spans overlap
}

type rank uint8

const (
	rankGeneric  rank = iota // some key = some value
	rankLeak                 // a rule of gitleaks
	rankOwn                  // a rule of ours
	rankStripped             // added for text read without its hidden characters
)

// A rules is everything that is compiled once: gitleaks' rules, our own, the
// phrases to flag and the automaton that says which of them to try.
type rules struct {
	words  *keywords.Automaton
	owner  []wordKind // keyword → what it is for
	leaks  []leakRule
	byWord [][]uint16 // keyword → leak rules to run
	assign int        // index in leaks of the generic assignment rule, -1 if none
	always []uint16   // leak rules without a keyword
	inject *inject.Detector
	pool   sync.Pool // of *scratch
}

type wordKind uint8

const (
	wordLeak   wordKind = iota
	wordURL             // "://"
	wordMySQL           // "@tcp("
	wordOracle          // "jdbc:oracle:thin:"
	wordKey             // "password" and the like: something secret may follow
	wordDSN             // "host" and the like: makes its neighbours a DSN
	wordAuth            // "authorization"
	wordInject          // may be an instruction to the model
)

// A hit is an own keyword at a place.
type hit struct {
	kind wordKind
	len  uint8
	end  int
}

type scratch struct {
	hits  []hit
	dsn   []int  // ends of DSN keys that are followed by =
	run   []bool // leak rules to run
	any   bool   // some leak rule is to run
	flag  bool
	spans []span
}

func ownWords() map[wordKind][]string {
	return map[wordKind][]string{
		wordURL:    {"://"},
		wordMySQL:  {"@tcp(", "@unix("},
		wordOracle: {"jdbc:oracle:thin:"},
		wordKey:    {"password", "passwd", "pwd", "passphrase", "_pass", "identified by"},
		wordDSN: {"host", "hostaddr", "server", "data source", "user", "username", "user id", "uid", "dbname",
			"database", "initial catalog", "port", "sslmode"},
		wordAuth:   {"authorization"},
		wordInject: inject.Words(),
	}
}

func newRules() (*rules, error) {
	leaks, global, err := leakRules()
	if err != nil {
		return nil, err
	}
	r := &rules{assign: -1, inject: inject.New()}
	ids := map[string]int{}
	var words []string
	add := func(word string, kind wordKind) int {
		id, ok := ids[word]
		if !ok {
			id = len(words)
			ids[word] = id
			words = append(words, word)
			r.owner = append(r.owner, kind)
			r.byWord = append(r.byWord, nil)
		}
		if kind != wordLeak {
			r.owner[id] = kind
		}
		return id
	}
	for kind, list := range ownWords() {
		for _, w := range list {
			add(w, kind)
		}
	}
	for i, l := range leaks {
		rule := leakRule{Rule: l, name: strings.ReplaceAll(l.RuleID, "-", " "), rank: rankLeak, global: global}
		if l.RuleID == "generic-api-key" {
			r.assign, rule.rank = i, rankGeneric
		}
		r.leaks = append(r.leaks, rule)
	}
	r.leaks = append(r.leaks, prefixRules()...)
	for i, l := range r.leaks {
		if len(l.Keywords) == 0 {
			r.always = append(r.always, uint16(i))
		}
		for _, k := range l.Keywords {
			id := add(strings.ToLower(k), wordLeak)
			r.byWord[id] = append(r.byWord[id], uint16(i))
		}
	}
	r.words = keywords.New(words)
	r.pool.New = func() any { return &scratch{run: make([]bool, len(r.leaks))} }
	return r, nil
}

// scan finds what to mask in s, in order and without overlaps, and whether it
// speaks to the model. The caller may keep the result.
func (r *rules) scan(s string) (spans []span, instruct bool) {
	c := r.pool.Get().(*scratch)
	defer r.pool.Put(c)
	r.look(s, c)
	if c.any {
		for i := range r.leaks {
			if c.run[i] {
				c.run[i] = false
				c.spans = r.leaks[i].spans(s, c.spans)
			}
		}
	}
	if len(c.hits) > 0 {
		c.spans = ownSpans(s, c, c.spans)
	}
	if c.flag {
		instruct = r.inject.Speaks(s)
	}
	if len(c.spans) == 0 {
		return nil, instruct
	}
	return merge(c.spans), instruct
}

// look runs the automaton and fills c with what is worth doing.
func (r *rules) look(s string, c *scratch) {
	c.hits, c.dsn, c.spans = c.hits[:0], c.dsn[:0], c.spans[:0]
	c.any, c.flag = len(r.always) > 0, false
	for _, i := range r.always {
		c.run[i] = true
	}
	r.words.Find(s, func(w uint16, end int) {
		for _, i := range r.byWord[w] {
			if !c.run[i] && (int(i) != r.assign || assigned(s, end)) {
				c.run[i], c.any = true, true
			}
		}
		switch kind := r.owner[w]; kind {
		case wordLeak:
		case wordInject:
			c.flag = true
		case wordDSN:
			if j := skipSpaces(s, end); j < len(s) && s[j] == '=' {
				c.dsn = append(c.dsn, end)
			}
		default:
			c.hits = append(c.hits, hit{kind: kind, len: uint8(len(r.words.Words[w])), end: end})
		}
	})
}

// assigned is a cheap necessary condition of gitleaks' rule for "some key = some
// value": words like key and access are everywhere in prose, and what follows
// them there never looks like this.
func assigned(s string, i int) bool {
	for n := 0; i < len(s) && n < 24; i, n = i+1, n+1 {
		switch c := s[i]; {
		case strings.IndexByte("=>:|?,", c) >= 0:
			for n = 0; i < len(s) && n < 12 && strings.IndexByte("=>:|?,`'\" \t\r\n\f\v", s[i]) >= 0; n++ {
				i++
			}
			for n = 0; i < len(s) && n < 6 && (wordByte(s[i]) || strings.IndexByte(".=-+/", s[i]) >= 0); n++ {
				i++
			}
			return n == 6
		case wordByte(c) || strings.IndexByte(" \t.-\r\n\f\v'\"", c) >= 0:
		default:
			return false
		}
	}
	return false
}

// merge sorts spans and joins those that overlap. The highest rank gives the
// name, then the first.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	out := make([]span, 0, len(spans))
	for _, s := range spans {
		if n := len(out); n > 0 && s.start < out[n-1].end {
			last := &out[n-1]
			if s.rank > last.rank {
				last.name, last.rank = s.name, s.rank
			}
			last.end = max(last.end, s.end)
			continue
		}
		out = append(out, s)
	}
	return out
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func skipSpaces(s string, i int) int {
	for n := 0; i < len(s) && n < 8 && (s[i] == ' ' || s[i] == '\t'); n++ {
		i++
	}
	return i
}
