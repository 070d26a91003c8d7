package gateway

import (
	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/outbound"
)

// harmless refuses a key that holds a secret: the tool's server gets the key, too,
// and it is listed in clear. Nobody needs such a key, so no human is asked.
func (g *Gateway) harmless(rec *record, key string) error {
	if outbound.Clean(g.Inspector, key) {
		return nil
	}
	rec.Key = outbound.Withheld
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Validate, Message: "the idempotency key holds a secret, and the tool's server would get it",
		Hint: "use another one, such as a UUID",
	}
}

// refuseSecrets refuses, where the operator wants that, a call that a human
// would be asked about.
func (g *Gateway) refuseSecrets(secrets []sallyport.Part) error {
	if !g.DenySecrets || len(secrets) == 0 {
		return nil
	}
	return &sallyport.Error{
		Code: sallyport.Denied, Step: sallyport.Authorize,
		Message: g.Sanitiser.Text(outbound.Say(secrets)),
		Hint:    "take them out; a tool that is meant to have them says may_receive: [secrets] in its manifest",
	}
}
