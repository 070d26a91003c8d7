package cedar

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
)

// contextCache keeps contexts without arguments: there are few different ones.
type contextCache struct {
	known cache[contextKey, types.Record]
}

type contextKey struct {
	action                    gateway.Action
	profile, onBehalfOf, tier string
	level                     sallyport.Level
	irreversible, tainted     bool
	effects                   string
}

// of returns the context of q, with its arguments only when a policy reads them.
func (c *contextCache) of(q gateway.Question, args bool) (types.Record, error) {
	risk := q.Risk
	if risk.Level < sallyport.Low || risk.Level > sallyport.Critical {
		return types.Record{}, fmt.Errorf("risk %v is not a level", risk.Level)
	}
	if risk.Irreversible {
		risk.Level = sallyport.Critical
	}
	key := contextKey{q.Action, q.Profile, q.Who.OnBehalfOf, q.Tier, risk.Level, risk.Irreversible, q.Tainted, strings.Join(risk.Effects, " ")}
	args = args || len(risk.Amounts) > 0 // no two are alike
	if !args || q.Action == gateway.ActionList {
		if rec, ok := c.known.get(key); ok {
			return rec, nil
		}
	}
	m := types.RecordMap{
		"profile":      types.String(q.Profile),
		"on_behalf_of": types.String(q.Who.OnBehalfOf),
	}
	if q.Action == gateway.ActionList {
		rec := types.NewRecord(m)
		c.known.put(key, rec)
		return rec, nil
	}
	m["tier"] = types.String(q.Tier)
	m["risk"] = types.NewRecord(types.RecordMap{
		"level":        types.Long(risk.Level),
		"level_name":   types.String(risk.Level.String()),
		"irreversible": types.Boolean(risk.Irreversible),
		"mutating":     types.Boolean(risk.Mutating()),
	})
	effects := make([]types.Value, len(risk.Effects))
	for i, e := range risk.Effects {
		effects[i] = types.String(e)
	}
	m["risk_effects"], m["tainted"] = types.NewSet(effects...), types.Boolean(q.Tainted)
	if amount, currency, ok := total(risk.Amounts); ok {
		m["amount"], m["currency"] = amount, types.String(currency)
	}
	if !args {
		rec := types.NewRecord(m)
		c.known.put(key, rec)
		return rec, nil
	}
	values, texts, err := argsRecord(q.Args)
	if err != nil {
		return types.Record{}, fmt.Errorf("arguments: %w", err)
	}
	m["args"], m["args_text"] = values, texts
	return types.NewRecord(m), nil
}

// argsRecord turns canonical arguments into a record for policies, and a second
// one with the exact text of the numbers that are no 64-bit integer.
//
// Such a number, and null, is in the first record too, as a value that no
// operator takes: `has` sees it, and a policy that compares it cannot be
// evaluated, which refuses the call. A guard like `context.args has amount &&
// context.args.amount > 100` can so not be slipped past with 100.5.
// Arrays become sets: order and repetition are lost.
func argsRecord(args []byte) (values, texts types.Record, err error) {
	if len(args) == 0 {
		return types.Record{}, types.Record{}, nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(args))
	if dec.PeekKind() != '{' {
		return values, texts, fmt.Errorf("want an object, have %v", dec.PeekKind())
	}
	v, t, err := readValue(dec)
	if err != nil {
		return values, texts, err
	}
	if _, err := dec.ReadToken(); err == nil {
		return values, texts, fmt.Errorf("data after the object")
	}
	values = v.(types.Record)
	if t != nil {
		texts = t.(types.Record)
	}
	return values, texts, nil
}

// readValue reads one value. text is nil, or what args_text has in its place.
func readValue(dec *jsontext.Decoder) (value, text types.Value, err error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, nil, err
	}
	switch tok.Kind() {
	case 'n':
		return opaque("null"), nil, nil
	case 't', 'f':
		return types.Boolean(tok.Bool()), nil, nil
	case '"':
		return types.String(tok.String()), nil, nil
	case '0':
		lit := tok.String()
		if n, ok := exactInt(lit); ok {
			return types.Long(n), nil, nil
		}
		return opaque(lit), types.String(lit), nil
	case '[':
		return readArray(dec)
	case '{':
		return readObject(dec)
	}
	return nil, nil, fmt.Errorf("unexpected %v", tok.Kind())
}

func readObject(dec *jsontext.Decoder) (value, text types.Value, err error) {
	values, texts := types.RecordMap{}, types.RecordMap{}
	folded := map[string]types.String{}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, nil, err
		}
		key := types.String(name.String())
		v, t, err := readValue(dec)
		if err != nil {
			return nil, nil, err
		}
		low := strings.ToLower(strings.ToUpper(string(key)))
		if twin, ok := folded[low]; ok {
			return nil, nil, twins{string(twin), string(key)}
		}
		folded[low] = key
		values[key] = v
		if t != nil {
			texts[key] = t
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, nil, err
	}
	if len(texts) > 0 {
		text = types.NewRecord(texts)
	}
	return types.NewRecord(values), text, nil
}

func readArray(dec *jsontext.Decoder) (value, text types.Value, err error) {
	var values, texts []types.Value
	for dec.PeekKind() != ']' {
		v, t, err := readValue(dec)
		if err != nil {
			return nil, nil, err
		}
		values = append(values, v)
		if s, ok := t.(types.String); ok {
			texts = append(texts, s)
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, nil, err
	}
	if len(texts) > 0 {
		text = types.NewSet(texts...)
	}
	return types.NewSet(values...), text, nil
}

// twins are two members whose names differ in case alone: servers that ignore
// case take one for the other, so no policy may rest on either.
type twins [2]string

func (t twins) Error() string {
	return fmt.Sprintf("the arguments %q and %q differ in case alone, and a server may take one for the other, so no policy can decide by them", t[0], t[1])
}

// opaque stands for a JSON value that Cedar has no type for.
func opaque(literal string) types.Record {
	return types.NewRecord(types.RecordMap{"\x00json": types.String(literal)})
}

// exactInt returns the value of a JSON number that is, mathematically, an
// integer of 64 bits: 100, 100.0 and 1e2 are the same number.
func exactInt(lit string) (int64, bool) {
	if n, err := strconv.ParseInt(lit, 10, 64); err == nil {
		return n, true
	}
	digits, sign := lit, ""
	if strings.HasPrefix(lit, "-") {
		digits, sign = lit[1:], "-"
	}
	exp := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		n, err := strconv.Atoi(digits[i+1:])
		if err != nil || n > 1<<20 || n < -1<<20 {
			return 0, false
		}
		digits, exp = digits[:i], n
	}
	whole, frac, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+frac, "0")
	exp -= len(frac)
	trimmed := strings.TrimRight(digits, "0")
	exp += len(digits) - len(trimmed)
	switch {
	case trimmed == "":
		return 0, true
	case exp < 0 || len(trimmed)+exp > 19:
		return 0, false
	}
	n, err := strconv.ParseInt(sign+trimmed+strings.Repeat("0", exp), 10, 64)
	if err != nil {
		return 0, false
	}
	return n, true
}
