package finding

import (
	"strings"
	"unicode"
)

// Secret tells whether a column, table, variable or file is secret by its name:
// password, api_key, clientSecret, auth-token … but not max_tokens.
func Secret(name string) bool {
	words := split(name)
	for i, w := range words {
		switch w {
		case "password", "passwords", "passwd", "passphrase", "pwd", "passwordhash", "secret", "secrets", "credential", "credentials",
			"apikey", "apikeys", "privatekey", "ssn", "cvv", "cvc", "rolpassword", "passwort", "htpasswd", "accesskey", "secretkey":
			return true
		case "token", "tokens":
			if !counted(words) {
				return true
			}
		case "key", "keys":
			if i > 0 && (words[i-1] == "api" || words[i-1] == "private" || words[i-1] == "access" || words[i-1] == "secret" ||
				words[i-1] == "encryption" || words[i-1] == "signing" || words[i-1] == "ssh") {
				return true
			}
		case "card", "pan":
			if i+1 < len(words) && words[i+1] == "number" {
				return true
			}
		}
	}
	return false
}

// counted is for the tokens of a language model, which are no secret.
func counted(words []string) bool {
	for _, w := range words {
		switch w {
		case "max", "min", "count", "counts", "total", "prompt", "completion", "input", "output", "used", "usage", "num", "limit", "n":
			return true
		}
	}
	return false
}

// split cuts a name into lower-case words at anything but letters and digits,
// and where lower case meets upper case.
func split(name string) []string {
	var words []string
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			words = append(words, b.String())
			b.Reset()
		}
	}
	lower := false
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			lower = false
			continue
		}
		if unicode.IsUpper(r) && lower {
			flush()
		}
		lower = unicode.IsLower(r) || unicode.IsDigit(r)
		b.WriteRune(unicode.ToLower(r))
	}
	flush()
	return words
}

// SecretPath tells whether a path leads to credentials by convention:
// /etc/shadow, ~/.ssh/id_ed25519, .env, ~/.aws/credentials …
func SecretPath(path string) bool {
	p := strings.ToLower(path)
	for _, part := range []string{
		"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/.ssh", ".aws/credentials", ".aws/config", ".netrc", ".pgpass", ".my.cnf",
		".kube/config", ".git-credentials", ".docker/config.json", ".gnupg", ".npmrc", ".pypirc", "/environ", "id_rsa", "id_dsa",
		"id_ecdsa", "id_ed25519", "/etc/ssl/private", ".vault-token", ".bash_history", ".psql_history", "/run/secrets", "/proc/kcore",
		"application_default_credentials", "authorized_keys", "/var/lib/sallyport", ".local/state/sallyport",
	} {
		if strings.Contains(p, part) {
			return true
		}
	}
	if strings.HasPrefix(p, ".ssh") {
		return true
	}
	base := p[strings.LastIndexByte(p, '/')+1:]
	if base == ".env" || strings.HasPrefix(base, ".env.") && base != ".env.example" && base != ".env.sample" {
		return true
	}
	for _, suffix := range []string{".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx", ".keytab"} {
		if strings.HasSuffix(base, suffix) && base != suffix {
			return true
		}
	}
	return base != "passwd" && Secret(base)
}
