package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Size is a number of bytes, written like 512MiB.
type Size int64

// Units of size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var units = [...]struct {
	name string
	size Size
}{
	{"KiB", KiB}, {"MiB", MiB}, {"GiB", GiB}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// String writes the size with the largest unit that divides it.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if u := units[i]; s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

const sizeHint = `write a whole number and a unit, for example 64KiB, 512MiB or 1GiB`

// ParseSize reads a size that is written like 512MiB.
func ParseSize(s string) (Size, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || strings.HasPrefix(number, "+") {
			break
		}
		if n > math.MaxInt64/int64(u.size) {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return Size(n) * u.size, nil
	}
	return 0, fmt.Errorf("%q is not a size", s)
}

const durationHint = `write a number and a unit, for example 500ms, 30s, 5m or 1h`

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration", s)
	}
	return d, nil
}
