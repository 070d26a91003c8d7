// Package gatewaytest has the fakes that tests of a gateway, and of what stands around
// one, have in common.
package gatewaytest

import (
	"encoding/json"
	"strings"

	"sallyport.dev/sallyport"
)

// Plain is a gateway.Sanitiser that changes nothing.
type Plain struct{}

// Result returns what the backend said.
func (Plain) Result(_ string, _ sallyport.Tool, out sallyport.Output) (json.RawMessage, bool, []string, error) {
	return out.Content, out.IsError, nil, nil
}

// Stream returns what makes a text of bytes.
func (Plain) Stream(string) func([]byte) string { return func(b []byte) string { return string(b) } }

// Notice returns n.
func (Plain) Notice(_ string, n sallyport.Notice) sallyport.Notice { return n }

// JSON returns v.
func (Plain) JSON(v json.RawMessage) json.RawMessage { return v }

// Text returns s.
func (Plain) Text(s string) string { return s }

// Principal is who a test's token is of: token-of-AGENT[@TENANT][+USER]. Any other is
// unknown.
func Principal(token, tenant string) (sallyport.Principal, error) {
	who, ok := strings.CutPrefix(token, "token-of-")
	if !ok {
		return sallyport.Principal{}, &sallyport.Error{Code: sallyport.Unauthenticated, Message: "unknown credential"}
	}
	p := sallyport.Principal{Tenant: tenant}
	who, p.OnBehalfOf, _ = strings.Cut(who, "+")
	p.ID, who, ok = strings.Cut(who, "@")
	if ok {
		p.Tenant = who
	}
	return p, nil
}
