package config

import (
	"regexp"
	"strings"
)

const referenceOpen = "${secret:"

// A reference is ${secret:NAME}, with a name as the secret store takes it.
var reference = regexp.MustCompile(`^\$\{secret:([A-Za-z0-9][A-Za-z0-9_.-]{0,63})\}`)

// References returns the names of the secrets that a value of env or headers
// refers to, in order. The value has been checked by Load.
func References(value string) []string {
	var out []string
	for {
		i := strings.Index(value, referenceOpen)
		if i < 0 {
			return out
		}
		value = value[i:]
		m := reference.FindStringSubmatch(value)
		if m == nil {
			value = value[len(referenceOpen):]
			continue
		}
		out = append(out, m[1])
		value = value[len(m[0]):]
	}
}

// references checks every ${secret…} of a value. Other uses of ${ are text:
// nothing is expanded here.
func (d *decoder) references(key, value string) {
	for i := strings.Index(value, "${secret"); i >= 0; i = strings.Index(value, "${secret") {
		value = value[i:]
		m := reference.FindString(value)
		if m == "" {
			// The value itself may hold a secret: it is not shown.
			d.fail(d.places[key], "write ${secret:NAME}, with a name from sallyport secrets list", "%s holds a broken reference to a secret", key)
			return
		}
		value = value[len(m):]
	}
}
