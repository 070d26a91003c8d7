package sallyport

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// A Window bounds what may be moved within a span of time before a human is
// asked: many small transfers are one large one.
type Window struct {
	Tool     string        `json:"tool,omitempty"`     // exposed name, a * at the end means "begins with"; "" is every tool
	Currency string        `json:"currency,omitempty"` // upper case; "" adds all amounts as if they were of one
	Limit    string        `json:"limit"`              // a decimal; a sum above it needs a human
	Per      time.Duration `json:"per"`                // at most MaxWindow
	By       string        `json:"by"`                 // one of the By constants
}

// What a window adds up: everything that one agent moves, what goes to one
// recipient, or everything.
const (
	ByPrincipal = "principal"
	ByRecipient = "recipient"
	ByTenant    = "tenant"
)

// MaxWindow is how long amounts are remembered.
const MaxWindow = 31 * 24 * time.Hour

// An Overrun is a window that a call would overrun.
type Overrun struct {
	Window Window
	Sum    string // with this call; "" if it cannot be told
}

func (o Overrun) String() string {
	what := map[string]string{ByPrincipal: "this agent", ByRecipient: "one recipient", ByTenant: "all agents"}[o.Window.By]
	unit := ""
	if o.Window.Currency != "" {
		unit = " " + o.Window.Currency
	}
	if o.Sum == "" {
		return fmt.Sprintf("it moves an amount that cannot be counted, and the limit for %s is %s%s in %s", what, o.Window.Limit, unit, o.Window.Per)
	}
	return fmt.Sprintf("with it the sum for %s in %s is %s%s, above the limit of %s%s", what, o.Window.Per, o.Sum, unit, o.Window.Limit, unit)
}

// Counts reports whether the window counts amounts of a currency. One whose
// currency is not known, or is not written as three letters, counts everywhere.
func (w Window) Counts(currency string) bool {
	currency = strings.TrimSpace(currency)
	if w.Currency == "" || strings.EqualFold(w.Currency, currency) {
		return true
	}
	for i := range len(currency) {
		if c := currency[i] | 0x20; c < 'a' || c > 'z' {
			return true
		}
	}
	return len(currency) != 3
}

// A Quota bounds how many calls that may change something one agent makes.
type Quota struct {
	Tool  string        `json:"tool,omitempty"`  // as in Window
	Agent string        `json:"agent,omitempty"` // "" is each agent, counted by itself
	Calls int           `json:"calls"`
	Per   time.Duration `json:"per"`
}

// Matches reports whether a pattern of Window or Quota names a tool.
func Matches(pattern, tool string) bool {
	if head, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(tool, head)
	}
	return pattern == "" || pattern == tool
}

// maxExponent and maxDigits bound what ParseAmount computes with.
const (
	maxExponent = 30
	maxDigits   = 60
)

var errAmount = errors.New("not a decimal that can be counted exactly")

// ParseAmount reads a decimal, exactly: -12.50, 3, 1e3. What is written in
// another way (1,000), or is huge, is an error. The sign does not count: money
// moves either way.
func ParseAmount(s string) (*big.Rat, error) {
	digits, exponent, scaled := strings.Cut(strings.TrimPrefix(s, "-"), "e")
	if !scaled {
		digits, exponent, scaled = strings.Cut(digits, "E")
	}
	if scaled {
		n, err := strconv.Atoi(exponent)
		if err != nil || n > maxExponent || n < -maxExponent {
			return nil, errAmount
		}
	}
	whole, fraction, point := strings.Cut(digits, ".")
	if whole == "" || point && fraction == "" || len(digits) > maxDigits || strings.Trim(whole+fraction, "0123456789") != "" {
		return nil, errAmount
	}
	r, ok := new(big.Rat).SetString(strings.TrimPrefix(s, "-"))
	if !ok {
		return nil, errAmount
	}
	return r, nil
}

// FormatAmount writes a sum of parsed amounts as a decimal, exactly.
func FormatAmount(r *big.Rat) string {
	n, exact := r.FloatPrec()
	if !exact { // no sum of decimals is such a number
		n = maxExponent
	}
	return r.FloatString(n)
}
