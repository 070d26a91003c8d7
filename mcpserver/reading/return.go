package reading

import (
	"encoding/json"
	"errors"

	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// Return reads the parameters of a stateless client that comes back with answers to
// what it was asked: the state that it was given, and the answers by their keys.
func Return(params json.RawMessage) (state string, answers map[string]json.RawMessage, err error) {
	for name, v := range wire.Members(params) {
		switch string(name) {
		case "requestState":
			var ok bool
			if state, ok = wire.String(v); !ok || state == "" {
				return "", nil, errors.New("requestState must be a string that is not empty")
			}
		case "inputResponses":
			if answers, err = ask.Responses(v); err != nil {
				return "", nil, err
			}
		}
	}
	return state, answers, nil
}
