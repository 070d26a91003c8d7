package gateway

import (
	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/outbound"
	"sallyport.dev/sallyport/gateway/refusal"
)

// harmless refuses a key that holds a secret: the tool's server gets the key, too,
// and it is listed in clear. Nobody needs such a key, so no human is asked.
func (g *Gateway) harmless(rec *record, key string) error {
	if outbound.Clean(g.Inspector, key) {
		return nil
	}
	rec.Key = outbound.Withheld
	return refusal.SecretKey()
}

// refuseSecrets refuses, where the operator wants that, a call that a human
// would be asked about.
func (g *Gateway) refuseSecrets(secrets []sallyport.Part) error {
	if !g.DenySecrets || len(secrets) == 0 {
		return nil
	}
	return refusal.Secrets(g.Sanitiser.Text(outbound.Say(secrets)))
}
