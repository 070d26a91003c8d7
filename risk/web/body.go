package web

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
	"sallyport.dev/sallyport/risk/finding"
)

const (
	maxBody  = 1 << 20
	maxInner = 256 // requests within one body
)

// A body is what a request carries, and how much of it may still be judged.
type body struct {
	found  *finding.List
	budget int
}

// content judges what stands in a request's body or query: forms that override
// the method, GraphQL, JSON-RPC, and requests within the request.
func content(l *finding.List, text string) {
	if text == "" {
		return
	}
	if len(text) > maxBody {
		l.Add(sallyport.Critical, "the request's body is too long to judge")
		return
	}
	b := &body{found: l, budget: maxInner}
	trimmed := strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "["):
		b.documents(trimmed)
	case strings.Contains(text, "="):
		if values, err := url.ParseQuery(trimmed); err == nil {
			b.form(values)
		}
	}
	b.graphql(text)
	for _, m := range innerRequest.FindAllStringSubmatch(text, maxInner) {
		if known(m[1]) || strings.HasPrefix(m[2], "/") || strings.Contains(m[0], " HTTP/") {
			b.request(m[1], m[2])
		}
	}
	if strings.Contains(text, "Content-Disposition") {
		for _, m := range overriding.FindAllStringSubmatch(text, maxInner) {
			b.override(m[1])
		}
	}
}

var (
	// innerRequest is a request line inside a batch. (multipart/mixed, OData)
	innerRequest = regexp.MustCompile(`(?m)^\s*([A-Z]{3,12}) +(\S+)(?: +HTTP/[0-9.]+)?\s*$`)
	overriding   = regexp.MustCompile(`(?i)name="_method"\s+([A-Za-z]{3,12})`)
)

func (b *body) override(m string) {
	b.found.Add(sallyport.High, "asks the server to take another method than it shows")
	method(b.found, m)
}

func (b *body) request(m, address string) {
	if b.budget--; b.budget < 0 {
		b.found.Add(sallyport.Critical, "the request holds too many requests to judge")
		return
	}
	b.found.Part("", "request", m+" "+address)
	method(b.found, m)
	if u, err := url.Parse(address); err == nil {
		service(b.found, m, strings.ToLower(u.Hostname()), u.Path)
	}
}

// documents reads one JSON value, or one on each line. (Elasticsearch's bulk)
func (b *body) documents(text string) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	for dec.More() {
		var v any
		if err := dec.Decode(&v); err != nil {
			return // a POST is high whatever it carries
		}
		b.value(v, 0)
	}
}

func (b *body) value(v any, depth int) {
	if depth > sallyport.MaxDepth {
		b.found.Add(sallyport.Critical, "the request's body is nested too deeply to judge")
		return
	}
	switch v := v.(type) {
	case string:
		b.text(v, depth)
	case []any:
		for _, e := range v {
			b.value(e, depth+1)
		}
	case map[string]any:
		b.object(v)
		for _, e := range v {
			b.value(e, depth+1)
		}
	}
}

func (b *body) text(s string, depth int) {
	b.graphql(s)
	t := strings.TrimSpace(s)
	if strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[") {
		var v any
		if json.Unmarshal([]byte(t), &v) == nil {
			b.value(v, depth+8)
		}
	}
}

func (b *body) object(m map[string]any) {
	text := func(name string) string { s, _ := m[name].(string); return s }
	if o := text("_method"); o != "" {
		b.override(o)
	}
	if name := text("method"); name != "" {
		_, rpc := m["jsonrpc"]
		switch _, params := m["params"]; {
		case known(name):
			b.request(name, text("url")+text("path")+text("uri")+text("relative_url"))
		case rpc || params:
			b.call(name)
		}
	}
	for _, action := range []string{"delete", "DeleteRequest", "Delete"} {
		if _, ok := m[action].(map[string]any); ok && len(m) == 1 {
			b.found.Effect(sallyport.EffectDelete)
			b.found.Lost("a document is deleted by a batch")
		}
	}
	for _, id := range []string{"documentId", "queryId", "persistedQuery", "sha256Hash"} {
		if _, ok := m[id]; ok && text("query") == "" {
			b.found.Effect(sallyport.EffectOpaque)
			b.found.Add(sallyport.Critical, "names a stored query that is not seen here")
		}
	}
}

// call judges a call of JSON-RPC by its method's verb.
func (b *body) call(name string) {
	b.found.Part("", "call", name)
	switch strings.ToLower(name) {
	case "eth_sendtransaction", "eth_sendrawtransaction", "sendtransaction", "sendrawtransaction", "sendtoaddress", "sendmany", "wallet_sendcalls":
		b.found.Effect(sallyport.EffectMoney)
		b.found.Lost("calls %s: money cannot be called back", name)
		return
	}
	if removes(name) {
		b.found.Effect(sallyport.EffectDelete)
		b.found.Lost("calls %s, which takes something away", name)
	}
}

// removes tells whether one word of a name is a verb that takes away.
func removes(name string) bool {
	for _, w := range cloud.Words(name) {
		switch w {
		case "delete", "remove", "destroy", "purge", "drop", "terminate", "erase", "wipe", "truncate", "revoke", "cancel", "deactivate", "archive", "unpublish",
			"transfer", "refund", "pay", "charge", "send", "unlink", "uninstall", "kill", "shutdown", "reset", "merge", "close":
			return true
		}
	}
	return false
}

func (b *body) form(values url.Values) {
	for _, name := range sortedKeys(values) {
		for _, v := range values[name] {
			switch strings.ToLower(name) {
			case "_method", "x-http-method-override", "_httpmethod":
				b.override(v)
			case "action":
				awsAction(b.found, v)
			default:
				b.text(v, 0)
			}
		}
	}
}
