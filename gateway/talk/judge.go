package talk

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/talk/form"
)

// judge makes a question fit to be seen, or settles it.
func (a *Asker) judge(m *matter) {
	var params map[string]json.RawMessage
	if len(m.q.Params) > 0 && json.Unmarshal(m.q.Params, &params) != nil {
		m.refuse(codeBadParams, "params is not an object")
		return
	}
	if err := form.Exact(m.q.Params, "message", "mode", "url", "requestedSchema", "elicitationId", "messages", "systemPrompt", "maxTokens", "tools", "toolChoice", "includeContext"); err != nil {
		m.refuse(codeBadParams, "params "+err.Error())
		return
	}
	delete(params, "_meta") // of the connection to the server, not of the question
	delete(params, "task")
	var wrong string
	code := codeBadParams
	switch m.q.Method {
	case sallyport.AskUser:
		code, wrong = a.judgeUser(m, params)
	case sallyport.AskModel:
		code, wrong = a.judgeModel(m, params)
	case sallyport.AskRoots:
		m.fits = roots
		if !a.o.Can.Roots {
			code, wrong = codeNoMethod, "the client has no roots"
		}
		params = nil
	default:
		code, wrong = codeNoMethod, "method not found"
	}
	if wrong != "" {
		m.refuse(code, wrong)
		return
	}
	if !m.settled && params != nil {
		a.clean(m, params)
	}
}

// clean masks what the client must not see. What cannot be masked without
// becoming another question is not put.
func (a *Asker) clean(m *matter, params map[string]json.RawMessage) {
	raw := encode(params)
	_, _, findings, err := a.o.Sanitiser.Result("", sallyport.Tool{}, sallyport.Output{Content: fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]}`, encode(strings.Join(texts(params), "\n")))})
	m.told.Findings = append(m.told.Findings, findings...)
	if err != nil || a.o.Taint(findings) != nil {
		m.refuse(codeInternal, "the question could not be judged")
		return
	}
	clean := a.o.Sanitiser.Notice(a.o.Reader, sallyport.Notice{Params: raw}).Params
	var after map[string]json.RawMessage
	if err := json.Unmarshal(clean, &after); err != nil || len(after) != len(params) {
		m.refuse(codeBadParams, "the question cannot be shown")
		return
	}
	if string(after["url"]) != string(params["url"]) {
		m.dismiss("decline", "the address holds a secret")
		return
	}
	if s := params["requestedSchema"]; s != nil && !sameFields(s, after["requestedSchema"]) {
		m.dismiss("decline", "the name of a field holds a secret")
		return
	}
	after["_meta"] = encode(map[string]string{"dev.sallyport/server": a.o.Server})
	m.q.Params = encode(after)
}

// texts are all names and texts in a question, for who reads them.
func texts(params map[string]json.RawMessage) (all []string) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all = append(all, v)
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				all = append(all, name)
				walk(v[name])
			}
		}
	}
	var v any
	_ = json.Unmarshal(encode(params), &v) // it is JSON
	walk(v)
	return all
}

func sameFields(before, after json.RawMessage) bool {
	x, err1 := form.Read(before)
	y, err2 := form.Read(after)
	return err1 == nil && err2 == nil && slices.Equal(x.Names(), y.Names())
}

func textOf(v json.RawMessage) (s string) {
	_ = json.Unmarshal(v, &s) // what is no text is none
	return s
}

// judgeUser judges a question to the user. Words mean that it is not put.
func (a *Asker) judgeUser(m *matter, params map[string]json.RawMessage) (int, string) {
	m.told.Mode = textOf(params["mode"])
	if params["mode"] == nil {
		m.told.Mode = "form"
	}
	if textOf(params["message"]) == "" {
		return codeBadParams, "params.message is missing"
	}
	switch m.told.Mode {
	case "form":
		return a.judgeForm(m, params)
	case "url":
		return a.judgeURL(m, params)
	}
	return codeBadParams, "the mode is neither form nor url"
}

func (a *Asker) judgeForm(m *matter, params map[string]json.RawMessage) (int, string) {
	if !a.o.Can.Form {
		return codeOf(a.o.Can.URL), "the client shows no forms"
	}
	f, err := form.Read(params["requestedSchema"])
	if err != nil {
		return codeBadParams, err.Error()
	}
	if name := f.Secret(textOf(params["message"])); name != "" {
		m.told.Findings = append(m.told.Findings, "blocked: a form that asks for a secret")
		m.dismiss("decline", fmt.Sprintf("the field %.40q asks for a secret, which a form must not", name))
		return 0, ""
	}
	m.fits = func(v json.RawMessage) (json.RawMessage, string, error) { return userAnswer(v, f) }
	return 0, ""
}

// codeOf is what a server is told that asks in a mode which the client does not
// have: that it has the other one, or none.
func codeOf(other bool) int {
	if other {
		return codeBadParams
	}
	return codeNoMethod
}

const maxURL = 4096

// notInURLs stand in no address, and in a line that shows one they end it, or begin another.
const notInURLs = " <>\"`{}|\\^"

func (a *Asker) judgeURL(m *matter, params map[string]json.RawMessage) (int, string) {
	if !a.o.Can.URL {
		return codeOf(a.o.Can.Form), "the client sends its user to no addresses"
	}
	raw := textOf(params["url"])
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "" || len(raw) > maxURL || strings.ContainsAny(raw, notInURLs):
		return codeBadParams, "params.url is not the address of a page"
	case u.User != nil:
		return codeBadParams, "params.url holds a name or a password"
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		return codeBadParams, "params.url is not https"
	}
	if host := u.Hostname(); strings.Contains(strings.ToLower(host), "xn--") || strings.ContainsFunc(host, func(r rune) bool { return r > '~' }) {
		m.told.Findings = append(m.told.Findings, "flag: an address with letters that may look like others")
	}
	m.fits = func(v json.RawMessage) (json.RawMessage, string, error) { return userAnswer(v, nil) }
	return 0, ""
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// judgeModel judges a question to the client's model.
func (a *Asker) judgeModel(m *matter, params map[string]json.RawMessage) (int, string) {
	var head struct {
		Messages  []json.RawMessage
		MaxTokens *json.Number
		Tools     []struct{ Name string }
	}
	if !a.o.Can.Sampling {
		return codeNoMethod, "the client's model writes for nobody"
	}
	if err := json.Unmarshal(encode(params), &head); err != nil || len(head.Messages) == 0 || head.MaxTokens == nil {
		return codeBadParams, "params needs messages and maxTokens"
	}
	if !a.o.Can.Tools && (params["tools"] != nil || params["toolChoice"] != nil) {
		return codeBadParams, "the client's model gets no tools"
	}
	if !a.o.Can.Context && params["includeContext"] != nil {
		params["includeContext"] = json.RawMessage(`"none"`)
	}
	var tools []string
	for _, t := range head.Tools {
		tools = append(tools, t.Name)
	}
	m.fits = func(v json.RawMessage) (json.RawMessage, string, error) { return modelAnswer(v, tools) }
	return 0, ""
}
