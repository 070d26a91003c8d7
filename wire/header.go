package wire

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

const (
	sentinelPrefix = "=?base64?"
	sentinelSuffix = "?="
)

// EncodeHeader returns s as a value of Mcp-Name or Mcp-Param-*: as it is where
// it is plain visible ASCII, else as the base64 sentinel.
func EncodeHeader(s string) string {
	if plainHeader(s) && !isSentinel(s) {
		return s
	}
	return sentinelPrefix + base64.StdEncoding.EncodeToString([]byte(s)) + sentinelSuffix
}

// DecodeHeader reverses EncodeHeader. A value with characters that no header
// may hold, or a sentinel around anything but base64 of UTF-8, is an error.
func DecodeHeader(v string) (string, error) {
	if !plainHeader(v) {
		return "", errors.New("holds characters that must be sent as =?base64?…?=")
	}
	if !isSentinel(v) {
		return v, nil
	}
	b, err := base64.StdEncoding.Strict().DecodeString(v[len(sentinelPrefix) : len(v)-len(sentinelSuffix)])
	if err != nil || !utf8.Valid(b) {
		return "", errors.New("holds =?base64?…?= around something that is not base64 of UTF-8 text")
	}
	return string(b), nil
}

func isSentinel(s string) bool {
	return len(s) >= len(sentinelPrefix)+len(sentinelSuffix) &&
		strings.HasPrefix(s, sentinelPrefix) && strings.HasSuffix(s, sentinelSuffix)
}

// plainHeader: visible ASCII, and spaces or tabs inside.
func plainHeader(s string) bool {
	for i := 0; i < len(s); i++ {
		inside := i > 0 && i < len(s)-1
		if c := s[i]; (c <= ' ' || c > '~') && !(inside && (c == ' ' || c == '\t')) {
			return false
		}
	}
	return true
}
