// Package ask reads and writes what crosses the wire when a server asks something
// in the middle of a call, in both eras: what a client can be asked, the questions
// and the answers.
package ask

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// MaxQuestions bounds what is asked in one round, and MaxKey the key of each.
const (
	MaxQuestions = 16
	MaxKey       = 128
)

// Abilities reads a client's capabilities. An empty elicitation means forms.
func Abilities(capabilities json.RawMessage) (a sallyport.Abilities) {
	if e := wire.Member(capabilities, "elicitation"); wire.IsObject(e) {
		a.URL = wire.IsObject(wire.Member(e, "url"))
		a.Form = wire.IsObject(wire.Member(e, "form")) || !a.URL
	}
	if s := wire.Member(capabilities, "sampling"); wire.IsObject(s) {
		a.Sampling, a.Tools, a.Context = true, wire.IsObject(wire.Member(s, "tools")), wire.IsObject(wire.Member(s, "context"))
	}
	a.Roots = wire.IsObject(wire.Member(capabilities, "roots"))
	return a
}

// Capabilities is the reverse of Abilities.
func Capabilities(a sallyport.Abilities) json.RawMessage {
	b := []byte{'{'}
	object := func(name string, parts ...any) { // name, whether, name, whether
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(wire.AppendString(b, name), `:{`...)
		comma := ""
		for i := 0; i < len(parts); i += 2 {
			if parts[i+1] == true {
				b, comma = append(append(b, comma...), `"`+parts[i].(string)+`":{}`...), ","
			}
		}
		b = append(b, '}')
	}
	if a.Form || a.URL {
		object("elicitation", "form", a.Form, "url", a.URL)
	}
	if a.Roots {
		object("roots")
	}
	if a.Sampling {
		object("sampling", "context", a.Context, "tools", a.Tools)
	}
	return append(b, '}')
}

// Required is a result that says what its server needs to know first.
type Required struct {
	Questions []sallyport.Question
	State     json.RawMessage // a string as it was written, nil if there is none
}

// ReadRequired reads a result of the type "input_required". ok is false for any other.
func ReadRequired(result json.RawMessage) (r Required, ok bool, err error) {
	if kind, _ := wire.String(wire.Member(result, "resultType")); kind != "input_required" {
		return r, false, nil
	}
	if r.State = wire.Member(result, "requestState"); r.State != nil && r.State[0] != '"' {
		return r, true, errors.New("requestState is not a string")
	}
	list := wire.Member(result, "inputRequests")
	if list == nil && r.State == nil {
		return r, true, errors.New("it asks for input, and does not say for which")
	}
	r.Questions, err = Questions(list)
	return r, true, err
}

// Questions reads inputRequests, nil if there are none.
func Questions(list json.RawMessage) (all []sallyport.Question, err error) {
	if list != nil && !wire.IsObject(list) {
		return nil, errors.New("inputRequests is not an object")
	}
	for key, v := range wire.Members(list) {
		q := sallyport.Question{Key: string(key), Params: wire.Member(v, "params")}
		q.Method, _ = wire.String(wire.Member(v, "method"))
		switch {
		case len(all) == MaxQuestions:
			return all, fmt.Errorf("it asks more than %d questions at once", MaxQuestions)
		case q.Key == "" || len(q.Key) > MaxKey:
			return all, fmt.Errorf("the key of a question has %d characters", len(q.Key))
		case !Known(q.Method):
			return all, fmt.Errorf("it asks for %.40q", q.Method)
		case q.Params != nil && !wire.IsObject(q.Params):
			return all, fmt.Errorf("the parameters of %s are not an object", q.Method)
		}
		all = append(all, q)
	}
	return all, nil
}

// Known reports whether a method is one that asks a client.
func Known(method string) bool {
	return method == sallyport.AskUser || method == sallyport.AskModel || method == sallyport.AskRoots
}

// AppendRetry appends the members of a request that is made again: the answers, by
// the questions' keys, and the server's own state.
func (r Required) AppendRetry(b []byte, answers []sallyport.Answer) []byte {
	if len(answers) > 0 {
		b = append(b, `,"inputResponses":{`...)
		for i, a := range answers {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(wire.AppendString(b, r.Questions[i].Key), ':'), a.Result...)
		}
		b = append(b, '}')
	}
	if r.State != nil {
		b = append(append(b, `,"requestState":`...), r.State...)
	}
	return b
}

// Result is a result that asks.
func Result(questions []sallyport.Question, state string) []byte {
	b := AppendRequests([]byte(`{"resultType":"input_required","inputRequests":`), questions)
	return append(wire.AppendString(append(b, `,"requestState":`...), state), '}')
}

// AppendRequests appends questions by their keys.
func AppendRequests(b []byte, questions []sallyport.Question) []byte {
	b = append(b, '{')
	for i, q := range questions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(wire.AppendString(b, q.Key), `:{"method":"`...), q.Method+`"`...)
		params := ForModern(q)
		if params == nil {
			params = json.RawMessage("{}") // go-sdk v1.8 reads no question without
		}
		b = append(append(append(b, `,"params":`...), params...), '}')
	}
	return append(b, '}')
}

// Responses reads what a client came back with. Each must be an object: what it
// says is looked at where the question is known.
func Responses(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if !wire.IsObject(raw) {
		return nil, errors.New("inputResponses must be an object")
	}
	all := map[string]json.RawMessage{}
	for key, v := range wire.Members(raw) {
		if !wire.IsObject(v) {
			return nil, fmt.Errorf("inputResponses[%.80q] must be an object", key)
		}
		if len(all) == 4*MaxQuestions {
			return nil, errors.New("inputResponses has too many members")
		}
		all[string(key)] = v
	}
	return all, nil
}

// idOf is the member by which earlier revisions name an address that a user is sent to.
const idOf = "elicitationId"

// ForModern are the parameters of a question as stateless clients have them.
func ForModern(q sallyport.Question) json.RawMessage {
	if wire.Member(q.Params, idOf) == nil {
		return q.Params
	}
	params, err := wire.RemoveMember(q.Params, idOf)
	if err != nil { // not an object, which nobody lets through
		return q.Params
	}
	return params
}

// ForLegacy are the parameters of a question as clients with sessions have them.
func ForLegacy(q sallyport.Question, version string) json.RawMessage {
	mode, _ := wire.String(wire.Member(q.Params, "mode"))
	params, err := q.Params, error(nil)
	switch {
	case mode == "url" && wire.Member(params, idOf) == nil:
		params, err = wire.SetMember(params, idOf, wire.Quote(rand.Text()))
	case mode == "form" && version < wire.Version2025_11_25: // had no modes yet
		params, err = wire.RemoveMember(params, "mode")
	}
	if err != nil {
		return q.Params
	}
	return params
}
