package sallyport

import (
	"fmt"
	"slices"
)

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

	Effects []string `json:"effects,omitempty"` // classes of effect, sorted: see the Effect constants
	Parts   []Part   `json:"parts,omitempty"`   // the dangerous parts of the arguments, most dangerous first
	Amounts []Amount `json:"amounts,omitempty"` // money that it moves
}

// The classes of effect: the same whichever tool, server or language brings
// the effect about.
const (
	EffectRead       = "read"       // reads data
	EffectWrite      = "write"      // adds or changes data
	EffectDelete     = "delete"     // removes data
	EffectDestroy    = "destroy"    // removes what holds data: tables, volumes, clusters
	EffectPrivileges = "privileges" // changes who may do what
	EffectExecute    = "execute"    // runs programs or code
	EffectNetwork    = "network"    // talks to another machine
	EffectMessage    = "message"    // tells somebody outside something
	EffectMoney      = "money"      // moves money
	EffectOpaque     = "opaque"     // cannot be read
)

// PartsLeftOut is the label of the part that says that there are more of them than
// a verdict lists.
const PartsLeftOut = "not listed"

// A Part is a piece of the arguments that a human must see first.
type Part struct {
	Path  string `json:"path,omitempty"` // JSON Pointer, "" if it is not one argument's
	Label string `json:"label"`          // "operation", "table", "recipient", "amount"
	Text  string `json:"text"`           // as it is written, shortened
}

// An Amount is money that a call moves.
type Amount struct {
	Value     string `json:"value"`              // a decimal, exactly as it is written
	Currency  string `json:"currency,omitempty"` // ISO 4217, upper case
	Recipient string `json:"recipient,omitempty"`
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
		Effects:      slices.Sorted(slices.Values(union(r.Effects, o.Effects))),
		Parts:        union(hi.Parts, lo.Parts),
		Amounts:      slices.Concat(r.Amounts, o.Amounts), // the same amount twice is twice the money
	}
}

// Reworded is r with each text that may quote the arguments as text returns it.
// It shares none of those texts with r.
func (r Risk) Reworded(text func(string) string) Risk {
	r.Reasons, r.Objects = slices.Clone(r.Reasons), slices.Clone(r.Objects)
	r.Parts, r.Amounts = slices.Clone(r.Parts), slices.Clone(r.Amounts)
	for i := range r.Reasons {
		r.Reasons[i] = text(r.Reasons[i])
	}
	for i := range r.Objects {
		r.Objects[i] = text(r.Objects[i])
	}
	for i := range r.Parts {
		r.Parts[i].Text = text(r.Parts[i].Text)
	}
	for i := range r.Amounts {
		r.Amounts[i].Recipient = text(r.Amounts[i].Recipient)
	}
	return r
}

func union[T comparable](a, b []T) []T {
	out := make([]T, 0, len(a)+len(b))
	seen := make(map[T]bool, len(a)+len(b))
	for _, s := range slices.Concat(a, b) {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
