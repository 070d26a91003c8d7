package sallyport

// A Route says which request of an HTTP API a call of a tool becomes. It is
// pinned with the tool's definition, and is all that executes: no text of a
// document is looked at again when a call is made.
type Route struct {
	Method string        `json:"method"`
	URL    string        `json:"url"` // absolute; {NAME} in its path stands for a parameter
	Params []RouteParam  `json:"params,omitempty"`
	Body   *RouteBody    `json:"body,omitempty"`
	Accept string        `json:"accept,omitempty"`
	Auth   [][]RouteAuth `json:"auth,omitempty"` // alternatives, each of which needs all of its parts; none means no credential
}

// A RouteParam is an argument that travels outside of the body.
type RouteParam struct {
	Argument string `json:"argument"`
	Name     string `json:"name"`  // on the wire
	In       string `json:"in"`    // "path", "query", "header", "cookie"
	Style    string `json:"style"` // of OpenAPI, "json" for a JSON text
	Explode  bool   `json:"explode,omitempty"`
}

// A RouteBody is an argument that travels as the body.
type RouteBody struct {
	Argument string                `json:"argument"`
	Type     string                `json:"type"`             // media type
	Form     string                `json:"form"`             // "json", "urlencoded", "multipart", "text", "base64"
	Fields   map[string]RouteField `json:"fields,omitempty"` // of a form, those that are not plain
}

// A RouteField says how a property of a form travels.
type RouteField struct {
	Style  string `json:"style,omitempty"`  // "deepObject", or "joined" for a list in one value
	Type   string `json:"type,omitempty"`   // media type of a part
	Base64 bool   `json:"base64,omitempty"` // a file, given as base64
}

// A RouteAuth is a credential that a request needs.
type RouteAuth struct {
	Scheme   string   `json:"scheme"` // its name in the document, by which the operator gives it
	Kind     string   `json:"kind"`   // "header", "query", "cookie", "basic", "bearer", "oauth2" (client credentials)
	Name     string   `json:"name,omitempty"`
	TokenURL string   `json:"token_url,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
}
