package suspect

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// mentions finds words about tools of other servers. A text that steers how one
// is used is grave, one that only names it is not.
func (l *look) mentions(path, s string) {
	if len(s) < minOrder || !strings.ContainsAny(s, " \t\n") {
		return
	}
	for word := range l.foreign(s) {
		server := l.names.Other(word)
		if server == "" {
			continue
		}
		if imperatives().MatchString(s) {
			l.add(path, true, "it steers how %s of %s is used: %.120q", word, server, s)
		} else {
			l.add(path, false, "it speaks of %s of %s", word, server)
		}
		return
	}
}

// sequel finds an order to use something that no tool of the server is called.
func (l *look) sequel(path, s string) bool {
	if !has(strings.ToLower(s), sequelWords) {
		return false
	}
	m := sequel().FindString(s)
	if m == "" {
		return false
	}
	for word := range l.foreign(m) {
		if strings.ContainsAny(word, "_-") {
			l.add(path, false, "it steers how %s is used, which is no tool of its server: %.120q", word, m)
			return true
		}
	}
	return false
}

// foreign are the words of a text that could be names of tools, but of none of
// the same server.
func (l *look) foreign(s string) iter.Seq[string] {
	words := naming().FindAllString(s, 64)
	for _, m := range called().FindAllStringSubmatch(s, 64) {
		words = append(words, m[1]+m[2])
	}
	return func(yield func(string) bool) {
		for _, word := range words {
			word = strings.Trim(word, "`'\"“”‘’.-")
			if !l.names.Own(word) && !yield(word) {
				return
			}
		}
	}
}

// references finds what a schema takes from elsewhere. Nothing here ever
// fetches it; a client might. ids are the names that the schema gives its parts.
func (l *look) references(path string, raw json.RawMessage, ids map[string]bool) {
	if !wire.IsObject(raw) {
		i := 0
		for v := range wire.Elements(raw) {
			l.references(fmt.Sprintf("%s/%d", path, i), v, ids)
			i++
		}
		return
	}
	for name, v := range wire.Members(raw) {
		at := path + "/" + sallyport.PointerToken(string(name))
		switch string(name) {
		case "$ref", "$dynamicRef", "$recursiveRef":
			if to, ok := wire.String(v); ok && external(to, ids) {
				l.add(at, true, "external reference %.100q: a schema must be complete in itself", to)
			}
		default:
			if !data[string(name)] {
				l.references(at, v, ids)
			}
		}
	}
}

// data are keywords of a schema whose values are values, not schemas.
var data = map[string]bool{"const": true, "enum": true, "default": true, "examples": true, "example": true}

// external reports whether a reference leads out of its document.
func external(to string, ids map[string]bool) bool {
	base, _, _ := strings.Cut(to, "#")
	return base != "" && !ids[base] && !strings.Contains(base, "://json-schema.org/draft")
}

func idsIn(raw json.RawMessage, ids map[string]bool) map[string]bool {
	if wire.IsObject(raw) {
		for name, v := range wire.Members(raw) {
			if data[string(name)] {
				continue
			}
			if s, ok := wire.String(v); ok && (string(name) == "$id" || string(name) == "id") {
				base, _, _ := strings.Cut(s, "#")
				ids[base] = true
				ids[base[strings.LastIndexByte(base, '/')+1:]] = true
			}
			idsIn(v, ids)
		}
		return ids
	}
	for v := range wire.Elements(raw) {
		idsIn(v, ids)
	}
	return ids
}
