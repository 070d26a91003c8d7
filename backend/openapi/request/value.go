package request

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// A value is an argument as the styles of OpenAPI write it: one text, a list of
// texts, or named texts.
type value struct {
	text  string
	list  []string
	pairs [][2]string
	raw   json.RawMessage
	kind  byte // 0 for a text, '[' or '{'
}

var errDeep = errors.New("what is nested cannot travel outside of a body")

// read takes one argument apart. Numbers stay as they were written.
func read(raw json.RawMessage) (value, error) {
	v := value{raw: raw}
	switch {
	case len(raw) > 0 && raw[0] == '[':
		v.kind = '['
		for e := range wire.Elements(raw) {
			s, ok := scalar(e)
			if !ok {
				v.list, v.pairs = nil, nil
				return v, nil // only a style that nests can write it
			}
			v.list = append(v.list, s)
		}
	case len(raw) > 0 && raw[0] == '{':
		v.kind = '{'
		for name, e := range wire.Members(raw) {
			s, ok := scalar(e)
			if !ok {
				v.pairs = nil
				return v, nil
			}
			v.pairs = append(v.pairs, [2]string{string(name), s})
		}
	default:
		s, ok := scalar(raw)
		if !ok {
			return v, fmt.Errorf("it is null")
		}
		v.text = s
	}
	return v, nil
}

// scalar is a text, a number as written, true or false.
func scalar(raw json.RawMessage) (string, bool) {
	if s, ok := wire.String(raw); ok {
		return s, true
	}
	if len(raw) == 0 || raw[0] == '[' || raw[0] == '{' || wire.IsNull(raw) {
		return "", false
	}
	return string(raw), true
}

func (v value) empty() bool {
	return v.kind == 0 && v.text == "" || v.kind != 0 && len(v.list) == 0 && len(v.pairs) == 0
}

// nested tells whether something in it is neither text, number nor truth.
func (v value) nested() bool {
	return v.kind != 0 && len(v.list) == 0 && len(v.pairs) == 0 && len(v.raw) > 2
}

// simple is a, or a,b, or k,v,k,v, or k=v,k=v where it explodes. (style simple)
func (v value) simple(explode bool, encode func(string) string) string {
	return v.join(",", ",", explode, encode)
}

func (v value) join(between, inside string, explode bool, encode func(string) string) string {
	equals := inside
	if explode {
		equals = "="
	}
	var all []string
	for _, s := range v.list {
		all = append(all, encode(s))
	}
	for _, p := range v.pairs {
		all = append(all, encode(p[0])+equals+encode(p[1]))
	}
	if v.kind == 0 {
		all = []string{encode(v.text)}
	}
	return strings.Join(all, between)
}

// inPath writes it where {NAME} stands in a path.
func (v value) inPath(p sallyport.RouteParam) string {
	switch p.Style {
	case "label":
		if p.Explode {
			return "." + v.join(".", ",", true, encode)
		}
		return "." + v.simple(false, encode)
	case "matrix":
		name := ";" + encode(p.Name)
		switch {
		case v.kind == '{' && p.Explode:
			return ";" + v.join(";", ",", true, encode)
		case v.kind == '[' && p.Explode:
			return name + "=" + v.join(name+"=", ",", true, encode)
		}
		return name + "=" + v.simple(false, encode)
	}
	return v.simple(p.Explode, encode)
}

// form is name=value, once or several times. (style form)
func (v value) form(p sallyport.RouteParam) (out [][2]string) {
	name := encode(p.Name)
	switch {
	case v.kind == '[' && p.Explode:
		for _, s := range v.list {
			out = append(out, [2]string{name, encode(s)})
		}
	case v.kind == '{' && p.Explode:
		for _, pair := range v.pairs {
			out = append(out, [2]string{encode(pair[0]), encode(pair[1])})
		}
	default:
		out = append(out, [2]string{name, v.simple(false, encode)})
	}
	return out
}

func (v value) query(p sallyport.RouteParam) ([][2]string, error) {
	switch {
	case p.Style == "deepObject" && v.kind == '{':
		return deep(nil, encode(p.Name), v.raw, 0)
	case v.nested():
		return nil, errDeep
	case v.empty() && v.kind != 0:
		return nil, nil
	case p.Style == "spaceDelimited" && !p.Explode:
		return [][2]string{{encode(p.Name), v.join("%20", "%20", false, encode)}}, nil
	case p.Style == "pipeDelimited" && !p.Explode:
		return [][2]string{{encode(p.Name), v.join("%7C", "%7C", false, encode)}}, nil
	}
	return v.form(p), nil
}

const maxDeep = 16

// deep writes an object as name[key]=value, lists as name[key]=a&name[key]=b.
func deep(out [][2]string, name string, raw json.RawMessage, level int) (_ [][2]string, err error) {
	if level > maxDeep {
		return nil, errDeep
	}
	switch {
	case wire.IsObject(raw):
		for key, e := range wire.Members(raw) {
			if out, err = deep(out, name+"["+encode(string(key))+"]", e, level+1); err != nil {
				return nil, err
			}
		}
	case len(raw) > 0 && raw[0] == '[':
		for e := range wire.Elements(raw) {
			s, ok := scalar(e)
			if !ok {
				return nil, errDeep
			}
			out = append(out, [2]string{name, encode(s)})
		}
	default:
		if s, ok := scalar(raw); ok {
			out = append(out, [2]string{name, encode(s)})
		}
	}
	return out, nil
}

const hexDigits = "0123456789ABCDEF"

// encode leaves only what RFC 3986 calls unreserved.
func encode(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && unreserved(s[i])
	}
	if plain {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	for i := range len(s) {
		if c := s[i]; unreserved(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}
