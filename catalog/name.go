package catalog

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// MaxName is the length of the longest exposed name. Clients put their own
// prefix before it, and the narrowest model API takes 64 characters.
const MaxName = 48

const (
	joiner   = "__"
	mark     = "--" // separates a shortened or altered name from its hash
	hashSize = 12   // base32 characters, 60 bits
)

var hashText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ExposedName maps a server's tool to the one name that agents see. It depends
// on nothing but its arguments, so it is stable over restarts and the order in
// which servers are registered, and it is injective:
//
//   - server__tool where that is plain: only [A-Za-z0-9_-], short enough, the
//     server part can be told from the tool part, and it does not look hashed;
//   - else a readable part, "--" and 60 bits of a hash of both names.
//
// An upstream could search for two names of its own with one hash; the second
// is then refused by the catalogue.
func ExposedName(server, tool string) string {
	if plain := server + joiner + tool; len(plain) <= MaxName && clear(server, tool) {
		return plain
	}
	room := MaxName - len(mark) - hashSize - len(joiner)
	s, t := alphabet(server), alphabet(tool)
	if len(s)+len(t) > room {
		s = s[:min(len(s), max(room/3, room-len(t)))]
		t = t[:min(len(t), room-len(s))]
	}
	return s + joiner + t + mark + hashNames(server, tool)
}

// clear reports whether server__tool says without doubt which two names it
// was made of, and could not be the hashed form of others.
func clear(server, tool string) bool {
	return server != "" && tool != "" &&
		server == alphabet(server) && tool == alphabet(tool) &&
		!strings.Contains(server, joiner) && !strings.HasSuffix(server, "_") &&
		!looksHashed(tool)
}

func looksHashed(s string) bool {
	i := len(s) - hashSize - len(mark)
	if i < 0 || s[i:i+len(mark)] != mark {
		return false
	}
	for _, c := range s[i+len(mark):] {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// alphabet replaces what exposed names may not hold, byte by byte.
func alphabet(s string) string {
	for i := 0; i < len(s); i++ {
		if !nameByte(s[i]) {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				if !nameByte(b[j]) {
					b[j] = '_'
				}
			}
			return string(b)
		}
	}
	return s
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// validName reports whether s may be an exposed name that the operator chose.
func validName(s string) bool {
	return s != "" && len(s) <= MaxName && s == alphabet(s)
}

func hashNames(server, tool string) string {
	b := binary.AppendUvarint(nil, uint64(len(server)))
	sum := sha256.Sum256(append(append(b, server...), tool...))
	return hashText.EncodeToString(sum[:])[:hashSize]
}
