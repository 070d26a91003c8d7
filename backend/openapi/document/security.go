package document

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/openapi/request"
)

const maxAlternatives = 16

// security notes which credentials the operation takes. An alternative that the
// gateway cannot fulfil is left out; with none left, the call goes without one,
// and the API says no.
func (o *operation) security() error {
	said, ok := o.said["security"].([]any)
	if !ok {
		said, _ = o.r.root["security"].([]any)
	}
	for i, v := range said {
		if i == maxAlternatives {
			break
		}
		var parts []sallyport.RouteAuth
		usable := true
		for _, scheme := range slices.Sorted(maps.Keys(object(v))) {
			a, err := o.r.scheme(scheme)
			if err != nil {
				o.r.warn(o.where, "security scheme %.80q is left out: %v", scheme, err)
				usable = false
				break
			}
			scopes, _ := object(v)[scheme].([]any)
			for _, s := range scopes {
				if text, ok := s.(string); ok && a.Kind == "oauth2" {
					a.Scopes = append(a.Scopes, text)
				}
			}
			parts = append(parts, a)
		}
		if usable {
			o.route.Auth = append(o.route.Auth, parts)
		}
	}
	return nil
}

func (r *reading) scheme(name string) (sallyport.RouteAuth, error) {
	a := sallyport.RouteAuth{Scheme: name}
	s, err := r.follow(object(object(r.root["components"])["securitySchemes"])[name])
	if err != nil {
		return a, fmt.Errorf("it is not described")
	}
	kind, _ := s["type"].(string)
	switch kind {
	case "apiKey":
		a.Kind, _ = s["in"].(string)
		a.Name, _ = s["name"].(string)
		ours := request.Reserved(a.Name) && !strings.EqualFold(a.Name, "Authorization")
		if a.Kind != "header" && a.Kind != "query" && a.Kind != "cookie" || a.Kind != "query" && !headerName(a.Name) || a.Name == "" || a.Kind == "header" && ours {
			return a, fmt.Errorf("an API key cannot be %.80q in %.20q", a.Name, a.Kind)
		}
	case "http":
		how, _ := s["scheme"].(string)
		switch strings.ToLower(how) {
		case "basic", "bearer":
			a.Kind = strings.ToLower(how)
		default:
			return a, fmt.Errorf("scheme %.40q of HTTP is not known", how)
		}
	case "oauth2":
		a.Kind = "bearer" // a token that the operator got elsewhere
		if flow, ok := object(s["flows"])["clientCredentials"].(map[string]any); ok {
			a.Kind = "oauth2"
			a.TokenURL, _ = flow["tokenUrl"].(string)
		}
	case "openIdConnect":
		a.Kind = "bearer"
	default:
		return a, fmt.Errorf("type %.40q is not known", kind)
	}
	return a, nil
}
