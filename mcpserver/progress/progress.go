// Package progress keeps the progress of a call growing, as the protocol wants it,
// whatever its server says.
package progress

import (
	"encoding/json"
	"math"
	"strconv"
)

// A Meter knows what was told last. Its zero value has told nothing.
type Meter struct {
	last float64
	told bool
}

// Next is a value that is larger than the last, nil if there is none. The steps are
// small, so that the server's own values, when they come, are larger still.
func (m *Meter) Next() json.RawMessage {
	v := 0.0
	if m.told {
		v = max(m.last+1.0/1024, math.Nextafter(m.last, math.Inf(1)))
	}
	if math.IsInf(v, 0) {
		return nil
	}
	m.last, m.told = v, true
	return strconv.AppendFloat(nil, v, 'g', -1, 64)
}

// Pass is a server's value as it is, or raised a little where it does not grow; nil
// if it is no number, or none can be larger.
func (m *Meter) Pass(raw json.RawMessage) json.RawMessage {
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	if m.told && v <= m.last || !m.told && v < 0 {
		return m.Next()
	}
	m.last, m.told = v, true
	return raw
}
