package risk

import (
	"encoding/json"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/web"
)

// HTTP judges a request, given as JSON {"method", "url", "headers"} or as text:
// METHOD URL on the first line, headers on the following ones.
func (e *Engine) HTTP(text string) sallyport.Risk {
	text = strings.TrimSpace(text)
	if len(text) > maxScanned {
		return finding.One(sallyport.Critical, "the request is too long to judge")
	}
	var r web.Request
	if strings.HasPrefix(text, "{") {
		canonical, err := sallyport.Canonical(json.RawMessage(text))
		if err != nil {
			return finding.One(sallyport.Critical, "the request is not valid JSON: %s", err)
		}
		var fields struct {
			Method  string            `json:"method"`
			URL     string            `json:"url"`
			Headers map[string]string `json:"headers"`
		}
		if err := json.Unmarshal(canonical, &fields); err != nil {
			return finding.One(sallyport.Critical, "the request's method, url or headers are not of the type they should be")
		}
		r = web.Request(fields)
	} else {
		lines := strings.Split(text, "\n")
		words := strings.Fields(lines[0])
		if len(words) < 2 || len(words) > 3 || len(words) == 3 && !strings.HasPrefix(words[2], "HTTP/") {
			return finding.One(sallyport.Critical, `the request is not "METHOD URL" nor JSON, so what it does is unknown`)
		}
		r.Method, r.URL, r.Headers = words[0], words[1], map[string]string{}
		for _, line := range lines[1:] {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				r.Headers[name] = strings.TrimSpace(value)
			}
		}
	}
	if r.URL == "" {
		return finding.One(sallyport.Critical, "the request has no URL, so where it goes is unknown")
	}
	return web.Judge(r)
}
