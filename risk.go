package sallyport

import "fmt"

// A Level says how much harm an operation could do.
type Level int

// The levels, in order.
const (
	// Low: proven to change nothing.
	Low Level = iota
	// Medium: reads of sensitive data.
	Medium
	// High: any write, lock, privilege, session or server effect.
	High
	// Critical: unknown or unparsable, many rows, or not to be undone.
	Critical
)

var levelNames = [...]string{"low", "medium", "high", "critical"}

func (l Level) String() string {
	if l < Low || l > Critical {
		return fmt.Sprintf("level(%d)", int(l))
	}
	return levelNames[l]
}

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads a level's name.
func (l *Level) UnmarshalText(b []byte) error {
	for i, n := range levelNames {
		if n == string(b) {
			*l = Level(i)
			return nil
		}
	}
	return fmt.Errorf("unknown risk level %q: want low, medium, high or critical", b)
}

// A Risk is what an operation really does, as far as it can be told without
// touching anything.
type Risk struct {
	Level        Level    `json:"level"`
	Irreversible bool     `json:"irreversible"` // the caller cannot undo it; implies Critical
	Reasons      []string `json:"reasons"`      // plain sentences, most dangerous first
	Objects      []string `json:"objects"`      // tables, files, hosts that it names
}

// Mutating reports whether the operation may change anything.
func (r Risk) Mutating() bool { return r.Level >= High || r.Irreversible }

// Join merges another verdict into r: the higher level wins, reasons and
// objects are collected once each.
func (r Risk) Join(o Risk) Risk {
	hi, lo := r, o
	if o.Level > r.Level || o.Irreversible && !r.Irreversible {
		hi, lo = o, r
	}
	return Risk{
		Level:        max(r.Level, o.Level),
		Irreversible: r.Irreversible || o.Irreversible,
		Reasons:      union(hi.Reasons, lo.Reasons),
		Objects:      union(hi.Objects, lo.Objects),
	}
}

func union(a, b []string) []string {
	out := make([]string, 0, len(a)+len(b))
	seen := make(map[string]bool, len(a)+len(b))
	for _, s := range append(append([]string(nil), a...), b...) {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
