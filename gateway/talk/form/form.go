// Package form reads the forms that servers have users fill in (elicitation), and
// holds what was filled in against them. A form is a flat object of plain values.
package form

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxFields  = 100
	maxChoices = 1000
)

// A Form is what a user is asked to fill in.
type Form struct {
	fields   []field
	required []string
}

type field struct {
	name string
	schema
}

// schema is what of a field's schema matters for its value.
type schema struct {
	Type             string
	Title            string
	Description      string
	Format           string
	MinLength        *int
	MaxLength        *int
	Minimum, Maximum *json.Number
	Enum             []string
	OneOf, AnyOf     []choice
	Items            *schema
	MinItems         *int
	MaxItems         *int
}

type choice struct{ Const string }

// Read reads a requestedSchema. The error says what it is that no form can be.
func Read(raw json.RawMessage) (*Form, error) {
	var head struct {
		Type       string
		Properties json.RawMessage
		Required   []string
	}
	if err := json.Unmarshal(raw, &head); err != nil || head.Type != "object" {
		return nil, errors.New("requestedSchema is not the schema of an object")
	}
	if err := Exact(raw, "type", "properties", "required"); err != nil {
		return nil, fmt.Errorf("requestedSchema %w", err)
	}
	f := &Form{required: head.Required}
	if len(head.Properties) == 0 {
		return f, nil
	}
	dec := json.NewDecoder(bytes.NewReader(head.Properties))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("requestedSchema.properties is not an object")
	}
	for dec.More() {
		name, _ := dec.Token()
		var raw json.RawMessage
		var s schema
		if err := dec.Decode(&raw); err != nil || json.Unmarshal(raw, &s) != nil {
			return nil, fmt.Errorf("the field %.40q has no schema that a form can have", name)
		}
		if err := cmp.Or(exactly(raw), s.check()); err != nil {
			return nil, fmt.Errorf("the field %.40q %w", name, err)
		}
		if len(f.fields) == maxFields {
			return nil, fmt.Errorf("the form has more than %d fields", maxFields)
		}
		text, _ := name.(string)
		if slices.Contains(f.Names(), text) {
			return nil, fmt.Errorf("the field %.40q is there twice", text)
		}
		f.fields = append(f.fields, field{text, s})
	}
	return f, nil
}

func (s *schema) check() error {
	if len(s.choices()) > maxChoices || s.Items != nil && len(s.Items.choices()) > maxChoices {
		return fmt.Errorf("has more than %d choices", maxChoices)
	}
	switch s.Type {
	case "string", "number", "integer", "boolean":
		return nil
	case "array":
		if i := s.Items; i == nil || len(i.choices()) == 0 || i.Type != "string" && i.Type != "" { // titled choices have no type
			return errors.New("is a list of something else than choices")
		}
		return nil
	}
	return fmt.Errorf("is of the type %.40q, which a form does not have", s.Type)
}

// choices are the values that a field may have, nil if any.
func (s *schema) choices() []string {
	all := slices.Clone(s.Enum)
	for _, c := range slices.Concat(s.OneOf, s.AnyOf) {
		all = append(all, c.Const)
	}
	return all
}

// Names are the names of the fields, in order.
func (f *Form) Names() (names []string) {
	for _, x := range f.fields {
		names = append(names, x.name)
	}
	return names
}

// fewValues is less than what any secret is one of.
var fewValues = big.NewRat(1000, 1)

// open reports whether a field could take a secret.
func (s *schema) open() bool {
	switch s.Type {
	case "string":
		return s.choices() == nil
	case "number", "integer":
		if s.Minimum == nil || s.Maximum == nil {
			return true
		}
		low, ok1 := number(s.Minimum.String())
		high, ok2 := number(s.Maximum.String())
		return !ok1 || !ok2 || s.Type == "number" || new(big.Rat).Sub(high, low).Cmp(fewValues) >= 0
	}
	return false
}

// Fill returns what was filled in, with the form's fields and no others, in their
// order. The error says what does not fit, and quotes nothing of it.
func (f *Form) Fill(content json.RawMessage) (json.RawMessage, error) {
	var values map[string]json.RawMessage
	if len(content) > 0 {
		if err := json.Unmarshal(content, &values); err != nil {
			return nil, errors.New("content is not an object")
		}
	}
	out := []byte{'{'}
	for _, x := range f.fields {
		v, ok := values[x.name]
		if !ok {
			continue
		}
		if err := x.fits(v); err != nil {
			return nil, fmt.Errorf("the field %q %w", x.name, err)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		name, _ := json.Marshal(x.name) // a text always marshals
		out = append(append(append(out, name...), ':'), v...)
	}
	for _, name := range f.required {
		if _, ok := values[name]; !ok {
			return nil, fmt.Errorf("the field %q is missing", name)
		}
	}
	return append(out, '}'), nil
}

func (s *schema) fits(v json.RawMessage) error {
	switch s.Type {
	case "string":
		return s.fitsText(v)
	case "boolean":
		if string(v) != "true" && string(v) != "false" {
			return errors.New("is neither true nor false")
		}
	case "number", "integer":
		return s.fitsNumber(v)
	case "array":
		return s.fitsList(v)
	}
	return nil
}

func (s *schema) fitsText(v json.RawMessage) error {
	var text string
	if len(v) == 0 || v[0] != '"' || json.Unmarshal(v, &text) != nil {
		return errors.New("is not a text")
	}
	n := utf8.RuneCountInString(text)
	if s.MinLength != nil && n < *s.MinLength || s.MaxLength != nil && n > *s.MaxLength {
		return errors.New("is too short or too long")
	}
	if c := s.choices(); c != nil && !slices.Contains(c, text) {
		return errors.New("is not one of its choices")
	}
	var err error
	switch s.Format {
	case "email":
		var a *mail.Address
		if a, err = mail.ParseAddress(text); err == nil && a.Address != text {
			err = errors.New("more than an address")
		}
	case "uri":
		var u *url.URL
		if u, err = url.Parse(text); err == nil && u.Scheme == "" {
			err = errors.New("not absolute")
		}
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "date-time":
		_, err = time.Parse(time.RFC3339Nano, text)
	}
	if err != nil {
		return fmt.Errorf("is not of the format %s", s.Format)
	}
	return nil
}

// maxDigits keeps numbers small enough to be compared exactly.
const maxDigits = 400

func (s *schema) fitsNumber(v json.RawMessage) error {
	n, ok := number(string(v))
	if !ok {
		return errors.New("is not a number")
	}
	if s.Type == "integer" && !n.IsInt() {
		return errors.New("is not a whole number")
	}
	for _, b := range []struct {
		bound *json.Number
		wrong int
	}{{s.Minimum, -1}, {s.Maximum, 1}} {
		if b.bound == nil {
			continue
		}
		if limit, ok := number(b.bound.String()); ok && n.Cmp(limit) == b.wrong {
			return errors.New("is out of its bounds")
		}
	}
	return nil
}

// number reads a JSON number exactly, one of a reasonable size.
func number(text string) (*big.Rat, bool) {
	if text == "" || len(text) > maxDigits || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return nil, false
	}
	if _, exp, ok := strings.Cut(strings.ToLower(text), "e"); ok && len(strings.TrimLeft(exp, "+-0")) > 3 {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

func (s *schema) fitsList(v json.RawMessage) error {
	var list []string
	if len(v) == 0 || v[0] != '[' || json.Unmarshal(v, &list) != nil {
		return errors.New("is not a list of texts")
	}
	if s.MinItems != nil && len(list) < *s.MinItems || s.MaxItems != nil && len(list) > *s.MaxItems || len(list) > maxChoices {
		return errors.New("has too few or too many entries")
	}
	choices := s.Items.choices()
	for _, text := range list {
		if !slices.Contains(choices, text) {
			return errors.New("has an entry that is not one of its choices")
		}
	}
	return nil
}
