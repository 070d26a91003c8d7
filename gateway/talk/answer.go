package talk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"sallyport.dev/sallyport/gateway/talk/form"
)

// What fits a question is made anew of the members that answer it: a server gets
// no more than it asked for. The errors quote nothing of an answer.

// userAnswer holds a user's answer against the form, nil for an address.
func userAnswer(v json.RawMessage, f *form.Form) (json.RawMessage, string, error) {
	var in struct {
		Action  string
		Content json.RawMessage
	}
	if err := json.Unmarshal(v, &in); err != nil {
		return nil, "", errors.New("the answer is not an object with an action")
	}
	switch {
	case in.Action == "decline" || in.Action == "cancel" || in.Action == "accept" && f == nil:
		return json.RawMessage(`{"action":"` + in.Action + `"}`), in.Action, nil
	case in.Action != "accept":
		return nil, "", errors.New("the action is none of accept, decline and cancel")
	}
	content, err := f.Fill(in.Content)
	if err != nil {
		return nil, "", err
	}
	return fmt.Appendf(nil, `{"action":"accept","content":%s}`, content), "accept", nil
}

// modelAnswer holds a model's answer against the tools that it may use.
func modelAnswer(v json.RawMessage, tools []string) (json.RawMessage, string, error) {
	var in struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		Model      string          `json:"model"`
		StopReason *string         `json:"stopReason,omitempty"`
	}
	if err := json.Unmarshal(v, &in); err != nil || in.Model == "" || in.Role != "assistant" && in.Role != "user" {
		return nil, "", errors.New("the answer is not a message of a model")
	}
	var blocks []struct{ Type, Name string }
	list := bytes.TrimSpace(in.Content)
	if len(list) > 0 && list[0] == '{' {
		list = slices.Concat([]byte{'['}, list, []byte{']'})
	}
	if err := json.Unmarshal(list, &blocks); err != nil || len(blocks) == 0 {
		return nil, "", errors.New("the message has no content")
	}
	for _, b := range blocks {
		switch b.Type {
		case "text", "image", "audio":
		case "tool_use":
			if !slices.Contains(tools, b.Name) {
				return nil, "", errors.New("the message uses a tool that was not offered")
			}
		default:
			return nil, "", errors.New("the message has content of an unknown type")
		}
	}
	return encode(in), "result", nil
}

const maxRoots = 1000

// roots holds a list of folders against what one is.
func roots(v json.RawMessage) (json.RawMessage, string, error) {
	var in struct {
		Roots []struct {
			URI  string `json:"uri"`
			Name string `json:"name,omitempty"`
		} `json:"roots"`
	}
	if err := json.Unmarshal(v, &in); err != nil || in.Roots == nil || len(in.Roots) > maxRoots {
		return nil, "", errors.New("the answer is not a list of roots")
	}
	for _, r := range in.Roots {
		if u, err := url.Parse(r.URI); err != nil || u.Scheme != "file" {
			return nil, "", errors.New("a root is not a file: address")
		}
	}
	return encode(in), "result", nil
}
