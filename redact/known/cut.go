package known

import (
	"bytes"
	"slices"
	"sort"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const minPart = 3 // bytes of a part of a secret that is masked by itself

// Cut finds secrets that are cut in two or more by the borders of a document's
// texts, read one after the other, or whose two parts stand apart in it. parts
// are what is then to be masked wherever it stands in this document; whose are
// the names of the secrets.
func Cut(raw []byte, secrets []Secret) (parts []Secret, whose []string) {
	var suspects []Secret
	for _, k := range secrets {
		// Of one cut, the first or the last bytes are whole.
		if len(k.Value) >= Min && (bytes.Contains(raw, []byte(k.Value[:4])) || bytes.Contains(raw, []byte(k.Value[len(k.Value)-4:]))) {
			suspects = append(suspects, k)
		}
	}
	if len(suspects) == 0 {
		return nil, nil
	}
	joined, borders := joinedTexts(raw)
	for _, k := range suspects {
		found := k.apart(joined)
		for _, h := range Find(joined, k) {
			found = append(found, k.parts(joined, h, borders)...)
		}
		if parts = append(parts, found...); len(found) > 0 && !slices.Contains(whose, k.Name) {
			whose = append(whose, k.Name)
		}
	}
	return parts, whose
}

// apart finds a beginning and an end that make up the whole, wherever they are:
// one half printed on stdout, say, and the other on stderr.
func (k Secret) apart(joined string) []Secret {
	const least = 4 // shorter ones are in any text
	rest := strings.ReplaceAll(joined, k.Value, "\x00")
	n := len(k.Value)
	longest := func(part func(size int) string) int {
		return sort.Search(n, func(size int) bool { return !strings.Contains(rest, part(size+1)) })
	}
	head := longest(func(size int) string { return k.Value[:size] })
	tail := longest(func(size int) string { return k.Value[n-size:] })
	if head < least || tail < least || head+tail < n {
		return nil
	}
	return []Secret{{k.Name, k.Value[:head]}, {k.Name, k.Value[n-tail:]}}
}

// Find finds a value as it is.
func Find(s string, k Secret) (hits []Hit) {
	for from := 0; ; {
		at := strings.Index(s[from:], k.Value)
		if at < 0 {
			return hits
		}
		at += from
		from = at + len(k.Value)
		hits = append(hits, Hit{at, from, k.Name})
	}
}

// parts cuts a hit at the borders within it.
func (k Secret) parts(joined string, h Hit, borders []int) (all []Secret) {
	cuts := []int{h.Start}
	for _, b := range borders {
		if b > h.Start && b < h.End {
			cuts = append(cuts, b)
		}
	}
	if len(cuts) == 1 {
		return nil
	}
	cuts = append(cuts, h.End)
	for i, from := range cuts[:len(cuts)-1] {
		if to := cuts[i+1]; to-from >= minPart {
			all = append(all, Secret{k.Name, joined[from:to]})
		}
	}
	return all
}

// joinedTexts are a document's texts in their order, and where each ends. What
// says only of which kind a block is does not count.
func joinedTexts(raw []byte) (string, []int) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	var b strings.Builder
	var borders []int
	key := ""
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return b.String(), borders
		}
		if tok.Kind() != '"' {
			continue
		}
		if kind, n := dec.StackIndex(dec.StackDepth()); kind == '{' && n%2 == 1 {
			key = tok.String()
			continue
		}
		if key != "type" && key != "mimeType" {
			b.WriteString(tok.String())
			borders = append(borders, b.Len())
		}
	}
}
