package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// A needle is a form of a secret that answers are searched for.
type needle struct {
	text []byte
	mask []byte
}

// needles are the secrets as they are, and in the forms in which a server that
// echoes requests writes them. What else a server does with a secret that it
// was given is not found.
func needles(all []Injection) (out []needle) {
	for _, i := range all {
		mask := []byte("[masked: secret " + i.Name + "]")
		for _, v := range [][]byte{[]byte(i.Prefix + string(i.Value)), i.Value} {
			for _, form := range []string{
				string(v), base64.StdEncoding.EncodeToString(v), base64.RawStdEncoding.EncodeToString(v), base64.RawURLEncoding.EncodeToString(v),
				hex.EncodeToString(v), strings.ToUpper(hex.EncodeToString(v)), url.QueryEscape(string(v)), url.PathEscape(string(v)), jsonForm(string(v)),
			} {
				out = append(out, needle{[]byte(form), mask})
			}
		}
	}
	return out
}

// jsonForm is s as JSON writes it, with the slash escaped as some servers do.
func jsonForm(s string) string { return strings.ReplaceAll(s, "/", `\/`) }

func maskAll(b []byte, all []needle) []byte {
	for _, n := range all {
		b = bytes.ReplaceAll(b, n.text, n.mask)
	}
	return b
}

var errPacked = errors.New("the answer is packed, so it cannot be searched for secrets")

// scan makes an answer safe to hand to the sandbox.
func scan(r *http.Response, all []needle) error {
	if len(all) == 0 {
		return nil
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return errPacked
	}
	clean(r.Header, all)
	if r.StatusCode == http.StatusSwitchingProtocols {
		return errors.New("what follows a change of protocol cannot be searched for secrets")
	}
	r.Body = &scanned{ReadCloser: r.Body, of: r, all: all, keep: longest(all) - 1}
	r.ContentLength = -1
	r.Header.Del("Content-Length")
	return nil
}

// clean masks what is in values, and drops what has a secret in its name.
func clean(h http.Header, all []needle) {
	for name, values := range h {
		for _, n := range all {
			if strings.Contains(strings.ToLower(name), strings.ToLower(string(n.text))) {
				delete(h, name)
			}
		}
		for i, v := range values {
			values[i] = string(maskAll([]byte(v), all))
		}
	}
}

// unhinted passes no answers before the answer on (103 and the like): they are
// not searched.
type unhinted struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w unhinted) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is for http.ResponseController.
func (w unhinted) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func longest(all []needle) (n int) {
	for _, x := range all {
		n = max(n, len(x.text))
	}
	return n
}

// A scanned body has the secrets masked. It holds back as many bytes as may be
// the beginning of one.
type scanned struct {
	io.ReadCloser
	of   *http.Response
	all  []needle
	keep int

	raw   []byte // read, not yet searched to its end
	ready []byte // searched
	err   error
}

func (s *scanned) Read(p []byte) (int, error) {
	for len(s.ready) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		buf := make([]byte, 32<<10)
		n, err := s.ReadCloser.Read(buf)
		s.raw = maskAll(append(s.raw, buf[:n]...), s.all)
		hold := min(s.keep, len(s.raw))
		if err != nil {
			s.err, hold = err, 0
			clean(s.of.Trailer, s.all) // known with the end of the body
		}
		s.ready = s.raw[:len(s.raw)-hold]
		s.raw = bytes.Clone(s.raw[len(s.raw)-hold:])
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}
