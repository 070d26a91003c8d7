package config

import (
	"net/http"
	"net/url"
	"strings"
)

// How tokens for a server are got, and whose they are.
const (
	GrantCode        = "authorization_code" // a human logs in
	GrantCredentials = "client_credentials" // the gateway is known there by itself
	PerGateway       = "gateway"
	PerAgent         = "agent"
	PerUser          = "user"
)

// OAuth says how the gateway is authorised at a server behind a URL. Where any of
// it is given, Grant is not "".
type OAuth struct {
	Grant        string   `yaml:"grant"`              // authorization_code or client_credentials: authorization_code
	Per          string   `yaml:"per"`                // whose tokens calls are made with: gateway, agent, or user, on whose behalf the agent acts: gateway
	Issuer       string   `yaml:"issuer"`             // the authorization server: "", the one that the server names, which an operator confirms by a login
	ClientID     string   `yaml:"client_id"`          // of a client that was registered there by hand: "", the gateway registers itself
	ClientSecret string   `yaml:"client_secret,text"` // of it, as ${secret:NAME}: none
	PrivateKey   string   `yaml:"private_key,text"`   // of it, in PEM, as ${secret:NAME}: none
	MetadataURL  string   `yaml:"metadata_url"`       // https address at which the gateway's /oauth/upstream/NAME/client.json is found: "", none
	Scopes       []string `yaml:"scopes"`             // to ask for: what the server asks for
}

// oauth checks how a server is authorised at.
func (d *decoder) oauth(key string, s *Server) {
	o, place := &s.OAuth, func(k string) string { return join(key, "oauth."+k) }
	if _, set := d.places[join(key, "oauth")]; !set {
		return
	}
	if o.Grant == "" {
		o.Grant = GrantCode
	}
	if o.Per == "" {
		o.Per = PerGateway
	}
	d.oneOf(place("grant"), o.Grant, GrantCode, GrantCredentials)
	d.oneOf(place("per"), o.Per, PerGateway, PerAgent, PerUser)
	if o.Issuer != "" {
		d.endpoint(place("issuer"), o.Issuer)
	}
	for k, v := range map[string]string{"client_secret": o.ClientSecret, "private_key": o.PrivateKey} {
		d.references(place(k), v)
		if v != "" && len(References(v)) == 0 {
			d.fail(d.places[place(k)], "store it with sallyport secrets set NAME, and write ${secret:NAME}", "%s is written out", place(k))
		}
	}
	d.client(key, o)
	for name := range s.Headers {
		if strings.EqualFold(name, "Authorization") {
			d.fail(d.places[join(key, "headers."+name)], "keep one of the two", "%s is set by oauth", join(key, "headers."+http.CanonicalHeaderKey(name)))
		}
	}
	d.each(place("scopes"), o.Scopes, func(k, v string) {
		d.name(k, "scope", v, `^[!#-\[\]-~]{1,256}$`, "write one scope without spaces")
	})
}

// client checks who the gateway is at the authorization server.
func (d *decoder) client(key string, o *OAuth) {
	place := func(k string) string { return join(key, "oauth."+k) }
	whole := d.places[join(key, "oauth")]
	switch {
	case o.ClientSecret != "" && o.PrivateKey != "":
		d.fail(d.places[place("private_key")], "keep one of the two", "%s has both client_secret and private_key", join(key, "oauth"))
	case o.ClientSecret+o.PrivateKey != "" && o.ClientID == "":
		d.fail(whole, "add client_id", "%s has a credential of no client", join(key, "oauth"))
	case o.ClientID != "" && o.Issuer == "":
		d.fail(d.places[place("client_id")], "add issuer: a client's credentials are shown to the authorization server that knows it, and to no other", "%s is of no issuer", place("client_id"))
	case o.ClientID != "" && o.MetadataURL != "":
		d.fail(d.places[place("metadata_url")], "keep one of the two", "%s has both client_id and metadata_url", join(key, "oauth"))
	case o.Grant == GrantCredentials && (o.ClientID == "" || o.ClientSecret+o.PrivateKey == ""):
		d.fail(whole, "add issuer, client_id, and client_secret or private_key", "%s: client_credentials needs credentials", join(key, "oauth"))
	case o.Grant == GrantCredentials && o.Per != PerGateway:
		d.fail(d.places[place("per")], "take it out, or use grant: authorization_code", "%s: client_credentials are the gateway's, and nobody else's", join(key, "oauth"))
	}
	if u, err := url.Parse(o.MetadataURL); o.MetadataURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") == "" || u.User != nil || u.Fragment != "") {
		d.fail(d.places[place("metadata_url")], "write https://HOST/PATH", "%s is not the https address of a document", place("metadata_url"))
	}
}
