package form

import (
	"slices"
	"strings"
	"unicode"

	"sallyport.dev/sallyport/redact/lookalike"
)

// secretWords are what a form must not ask for, whole words in lower case.
var secretWords = append([][]string{
	{"pwd"}, {"secret"}, {"apikey"}, {"credential"}, {"credentials"}, {"token"}, {"pin"}, {"otp"}, {"cvc"}, {"ssn"}, {"senha"}, {"seed", "words"}, {"recovery", "words"},
}, graveWords...)

// graveWords are those for which it is enough that the message asks for them.
var graveWords = [][]string{{"passcode"}, {"cvv"}, {"api", "key"}, {"access", "key"}, {"private", "key"}, {"secret", "key"}, {"card", "number"}, {"security", "code"}}

// secretLetters mean the same, however they are spaced and whatever follows.
var secretLetters = []string{
	"password", "passwd", "passphrase", "seedphrase", "recoveryphrase", "passwort", "kennwort", "motdepasse", "contraseña", "contrasena", "пароль", "密码", "密碼", "パスワード",
}

// asking are the verbs of a message that wants something, rather than speaks of it.
var asking = []string{"enter", "type", "provide", "give", "input", "paste", "share", "tell", "supply", "submit", "confirm", "send", "what", "need", "write", "fill", "reply"}

// Secret names a field that asks for a secret, "" if none does: the protocol has
// an address for those, where the user gives them to nobody in between. message is
// what the form comes with.
func (f *Form) Secret(message string) string {
	text := "" // a field that takes whatever the message asks for
	for _, x := range f.fields {
		if !x.open() {
			continue
		}
		if secret(x.name, secretWords) || secret(x.Title, secretWords) || slices.ContainsFunc(wanted(x.Description), func(s string) bool { return secret(s, secretWords) }) {
			return x.name
		}
		if x.Type == "string" {
			text = x.name
		}
	}
	for _, s := range wanted(message) {
		if secret(s, graveWords) && slices.ContainsFunc(words(s), func(w string) bool { return slices.Contains(asking, w) }) {
			return text
		}
	}
	return ""
}

var sentences = strings.NewReplacer(". ", "\n", "! ", "\n", "? ", "\n", ": ", "\n", ";", "\n", "(", "\n", ")", "\n")

// wanted are the sentences of a text, each up to where it says what is not wanted.
func wanted(text string) (all []string) {
	for s := range strings.SplitSeq(sentences.Replace(text), "\n") {
		said := words(s)
		if i := slices.IndexFunc(said, func(w string) bool {
			return slices.Contains([]string{"not", "don", "dont", "never", "no", "without"}, w)
		}); i >= 0 {
			said = said[:i]
		}
		all = append(all, strings.Join(said, " "))
	}
	return all
}

// secret tells whether a text holds a word that is listed, or letters that are.
func secret(text string, list [][]string) bool {
	for _, t := range []string{text, lookalike.Read(text)} {
		all := words(t)
		letters := strings.Join(all, "")
		if holds(all, list) || slices.ContainsFunc(secretLetters, func(s string) bool { return strings.Contains(letters, s) }) {
			return true
		}
	}
	return false
}

func holds(all []string, list [][]string) bool {
	for _, want := range list {
		for i := range all {
			if len(all)-i >= len(want) && slices.Equal(all[i:i+len(want)], want) {
				return true
			}
		}
	}
	return false
}

// words splits userApiKey, user_api_key and "User API key" alike.
func words(text string) (all []string) {
	var word []rune
	flush := func() {
		if len(word) > 0 {
			all, word = append(all, strings.ToLower(string(word))), nil
		}
	}
	runes := []rune(text)
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			continue
		}
		if unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsUpper(runes[i-1]) && unicode.IsLower(runes[i+1])) {
			flush()
		}
		word = append(word, r)
	}
	flush()
	return all
}
