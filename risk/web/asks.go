package web

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
)

// asks says why a POST changes nothing, or "": some services take questions that
// are too long for an address in a body. The body is judged besides, as that of
// any request.
func asks(r Request) string {
	if !strings.EqualFold(strings.TrimSpace(r.Method), "POST") {
		return ""
	}
	u, err := url.Parse(strings.TrimSpace(r.URL))
	if err != nil || u.Host == "" || u.RawPath != "" || strings.ContainsAny(r.URL, `\%`) || slices.Contains(split(u.Path), "..") {
		return ""
	}
	switch target, n := amzTarget(r.Headers); {
	case n == 1 && (u.Path == "" || u.Path == "/") && strings.HasSuffix(strings.ToLower(u.Hostname()), ".amazonaws.com") && u.RawQuery == "":
		if a := cloud.Action("aws:" + target); plainAction.MatchString(target) && a.Level <= sallyport.Medium {
			return "asks AWS for " + target + " and changes nothing"
		}
	case n > 0:
	case searches.MatchString(u.Path) && !u.Query().Has("scroll"):
		return "asks a search engine and changes nothing"
	case strings.HasSuffix(u.Path, "/graphql") && u.RawQuery == "" && onlyQueries(r.Body):
		return "asks by a GraphQL query and changes nothing"
	}
	return ""
}

var (
	// searches are the questions of Elasticsearch and OpenSearch.
	searches    = regexp.MustCompile(`^(/[a-z0-9.,_*-]+)?/(_search|_count|_msearch|_mget|_field_caps|_search_shards|_validate/query|_explain/[A-Za-z0-9_-]+)$`)
	plainAction = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
)

// amzTarget is the action that a request names to AWS, and how often it names one.
func amzTarget(headers map[string]string) (action string, n int) {
	for name, value := range headers {
		if strings.EqualFold(strings.TrimSpace(name), "X-Amz-Target") {
			n++
			_, action, _ = strings.Cut(value, ".")
		}
	}
	return action, n
}

// onlyQueries tells whether a body is one GraphQL request whose document holds
// queries alone.
func onlyQueries(text string) bool {
	var request map[string]any
	if json.Unmarshal([]byte(text), &request) != nil {
		return false
	}
	document, ok := request["query"].(string)
	for name := range request {
		ok = ok && (name == "query" || name == "variables" || name == "operationName")
	}
	if !ok || strings.Contains(document, "mutation") || strings.Contains(document, "subscription") {
		return false
	}
	document = strings.TrimSpace(document)
	return strings.HasPrefix(document, "{") || strings.HasPrefix(document, "query") && len(operations(document)) > 0
}
