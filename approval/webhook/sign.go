package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// The headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// Tolerance is how far a message's time may be from ours.
const Tolerance = 5 * time.Minute

const secretPrefix = "whsec_"

// NewSecret returns a new signing secret: whsec_ and 32 random bytes in base64.
func NewSecret() string {
	b := make([]byte, 32)
	rand.Read(b)
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// parseSecret reads a signing secret: whsec_ and 24 to 64 bytes in base64.
func parseSecret(text []byte) ([]byte, error) {
	enc, ok := strings.CutPrefix(strings.TrimSpace(string(text)), secretPrefix)
	key, err := base64.StdEncoding.Strict().DecodeString(enc)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Approve, Message: "the webhook's signing secret is not whsec_ and 24 to 64 bytes in base64",
			Hint: "make one: sallyport webhooks secret | sallyport secrets set NAME"}
	}
	return key, nil
}

// sign returns the signature of a message.
func sign(key []byte, id string, at int64, body []byte) string {
	return "v1," + base64.StdEncoding.EncodeToString(mac(key, id, at, body))
}

// mac is the signature of version 1 of Standard Webhooks.
func mac(key []byte, id string, at int64, body []byte) []byte {
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%s.%d.", id, at)
	m.Write(body)
	return m.Sum(nil)
}

// A seal is what the headers of a message say.
type seal struct {
	id         string
	at         int64
	signatures [][]byte // of version 1
}

var (
	idRule   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	timeRule = regexp.MustCompile(`^[0-9]{1,12}$`)
)

// maxSignatures bounds how many signatures a message may carry.
const maxSignatures = 16

// readSeal reads the headers. Codes: Unauthenticated where one is missing,
// Invalid where one is malformed: it decides nothing by itself.
func readSeal(h http.Header) (s seal, err error) {
	values := map[string]string{}
	for _, name := range []string{headerID, headerTimestamp, headerSignature} {
		switch all := h[name]; {
		case len(all) == 0 || all[0] == "":
			return s, &sallyport.Error{Code: sallyport.Unauthenticated, Step: sallyport.Authenticate, Message: "the header " + strings.ToLower(name) + " is missing",
				Hint: "sign the message as the Standard Webhooks specification says"}
		case len(all) > 1:
			return s, malformed(name, "it is there twice")
		default:
			values[name] = all[0]
		}
	}
	if s.id = values[headerID]; !idRule.MatchString(s.id) {
		return s, malformed(headerID, "it must be 1 to 128 letters, digits, '_' and '-'")
	}
	if !timeRule.MatchString(values[headerTimestamp]) {
		return s, malformed(headerTimestamp, "it must be seconds since 1970")
	}
	if s.at, err = strconv.ParseInt(values[headerTimestamp], 10, 64); err != nil {
		return s, malformed(headerTimestamp, "it must be seconds since 1970")
	}
	all := strings.Split(values[headerSignature], " ")
	if len(all) > maxSignatures {
		return s, malformed(headerSignature, "it has too many signatures")
	}
	for _, one := range all {
		version, enc, ok := strings.Cut(one, ",")
		if !ok {
			return s, malformed(headerSignature, "it must be v1,BASE64")
		}
		if version != "v1" {
			continue // versions to come
		}
		sig, err := base64.StdEncoding.Strict().DecodeString(enc)
		if err != nil || len(sig) != sha256.Size {
			return s, malformed(headerSignature, "it must be v1,BASE64 of 32 bytes")
		}
		s.signatures = append(s.signatures, sig)
	}
	if len(s.signatures) == 0 {
		return s, malformed(headerSignature, "it has no signature of version 1")
	}
	return s, nil
}

func malformed(header, what string) error {
	return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Authenticate, Message: "the header " + strings.ToLower(header) + " is malformed: " + what}
}

// by reports whether one of the signatures was made with key, in a time that
// says nothing about it.
func (s seal) by(key, body []byte) bool {
	want, found := mac(key, s.id, s.at, body), false
	for _, sig := range s.signatures {
		if hmac.Equal(sig, want) {
			found = true
		}
	}
	return found
}

// fresh reports whether the message's time is close to now.
func (s seal) fresh(now time.Time) bool {
	apart := now.Sub(time.Unix(s.at, 0))
	return apart <= Tolerance && apart >= -Tolerance
}
