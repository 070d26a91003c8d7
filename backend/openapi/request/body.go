package request

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

func (b *builder) body(r *sallyport.RouteBody, raw json.RawMessage) (err error) {
	b.out.Type = r.Type
	switch r.Form {
	case "json":
		if wire.Member(raw, "_method") != nil { // Laravel, and what takes JSON for a form
			return errors.New("its member _method chooses another method than the request shows")
		}
		b.out.Body = raw
		return nil
	case "text":
		s, ok := wire.String(raw)
		if !ok {
			return errors.New("it must be text")
		}
		b.out.Body = []byte(s)
		return nil
	case "base64":
		b.out.Body, err = file(raw)
		return err
	}
	if !wire.IsObject(raw) {
		return errors.New("it must be an object: a form has fields")
	}
	if r.Form == "multipart" {
		return b.multipart(r, raw)
	}
	return b.urlencoded(r, raw)
}

// file decodes what is given as base64.
func file(raw json.RawMessage) ([]byte, error) {
	s, ok := wire.String(raw)
	if !ok {
		return nil, errors.New("a file is given as base64 text")
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("it is not base64: %w", err)
	}
	if b == nil {
		b = []byte{}
	}
	return b, nil
}

func (b *builder) urlencoded(r *sallyport.RouteBody, raw json.RawMessage) error {
	var all []string
	for key, e := range wire.Members(raw) {
		name := string(key)
		if Overrides(name) {
			return fmt.Errorf("field %q chooses another method than the request shows", name)
		}
		v, err := read(e)
		if err != nil {
			continue // null: not there
		}
		p := sallyport.RouteParam{Name: name, Explode: r.Fields[name].Style != "joined", Style: r.Fields[name].Style}
		var pairs [][2]string
		switch {
		case p.Style == "deepObject" && v.kind != 0:
			pairs, err = deep(nil, encode(name), e, 0)
		case v.kind == '{' || v.nested():
			pairs = [][2]string{{encode(name), encode(string(e))}}
		case v.empty() && v.kind != 0:
		default:
			pairs = v.form(p)
		}
		if err != nil {
			return fmt.Errorf("field %q: %w", name, err)
		}
		for _, pair := range pairs {
			all = append(all, pair[0]+"="+pair[1])
		}
	}
	b.out.Body = []byte(strings.Join(all, "&"))
	return nil
}

// multipart writes a form with files. Its boundary follows from the content, so
// that the same call is the same request.
func (b *builder) multipart(r *sallyport.RouteBody, raw json.RawMessage) error {
	sum := sha256.Sum256(raw)
	boundary := "sallyport-" + hex.EncodeToString(sum[:16])
	var out bytes.Buffer
	for key, e := range wire.Members(raw) {
		name, field := string(key), r.Fields[string(key)]
		if Overrides(name) {
			return fmt.Errorf("field %q chooses another method than the request shows", name)
		}
		items := []json.RawMessage{e}
		if len(e) > 0 && e[0] == '[' {
			items = items[:0]
			for item := range wire.Elements(e) {
				items = append(items, item)
			}
		}
		for _, item := range items {
			if err := part(&out, boundary, name, field, item); err != nil {
				return fmt.Errorf("field %q: %w", name, err)
			}
		}
	}
	fmt.Fprintf(&out, "--%s--\r\n", boundary)
	b.out.Body, b.out.Type = out.Bytes(), r.Type+"; boundary="+boundary
	return nil
}

func part(out *bytes.Buffer, boundary, name string, field sallyport.RouteField, item json.RawMessage) error {
	content, kind := []byte(item), "application/json"
	switch text, scalar := scalar(item); {
	case wire.IsNull(item):
		return nil
	case field.Base64:
		b, err := file(item)
		if err != nil {
			return err
		}
		content, kind = b, "application/octet-stream"
	case scalar:
		content, kind = []byte(text), ""
	}
	if field.Type != "" {
		kind = field.Type
	}
	if bytes.Contains(content, []byte("\r\n--"+boundary)) {
		return errors.New("it holds the mark that separates the parts of a form")
	}
	quoted := strings.NewReplacer("\\", "\\\\", `"`, `%22`, "\r", "%0D", "\n", "%0A").Replace(name)
	fmt.Fprintf(out, "--%s\r\nContent-Disposition: form-data; name=\"%s\"", boundary, quoted)
	if field.Base64 {
		fmt.Fprintf(out, "; filename=\"%s\"", quoted)
	}
	if kind != "" {
		fmt.Fprintf(out, "\r\nContent-Type: %s", kind)
	}
	out.WriteString("\r\n\r\n")
	out.Write(content)
	out.WriteString("\r\n")
	return nil
}
