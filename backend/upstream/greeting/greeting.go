// Package greeting reads what servers say of themselves when they are met.
package greeting

import (
	"encoding/json"
	"fmt"
	"slices"

	"sallyport.dev/sallyport/wire"
)

// maxReaches bounds how many gateways a server may say that it reaches.
const maxReaches = 64

// legacy are the revisions with initialize that are understood.
var legacy = []string{
	wire.Version2025_11_25, wire.Version2025_06_18, wire.Version2025_03_26, wire.Version2024_11_05,
}

// A Greeting is what a server of either era says.
type Greeting struct {
	Info         json.RawMessage
	Capabilities json.RawMessage
	Instructions string
	Reaches      []string // gateways that it is, or that are behind it
}

// Discovered reads the result of server/discover. ok is that the server speaks version.
func Discovered(result json.RawMessage, version string) (g Greeting, ok bool) {
	for v := range wire.Elements(wire.Member(result, "supportedVersions")) {
		if text, _ := wire.String(v); text == version {
			return read(result, wire.Path(result, "_meta", wire.MetaServerInfo)), true
		}
	}
	return Greeting{}, false
}

// Initialized reads the result of initialize, and which revision was agreed on.
func Initialized(result json.RawMessage) (g Greeting, version string, err error) {
	version, _ = wire.String(wire.Member(result, "protocolVersion"))
	if !slices.Contains(legacy, version) {
		return Greeting{}, "", fmt.Errorf("it speaks protocol version %.40q, which is not known here", version)
	}
	return read(result, wire.Member(result, "serverInfo")), version, nil
}

func read(result, info json.RawMessage) Greeting {
	g := Greeting{Capabilities: wire.Member(result, "capabilities")}
	if wire.IsObject(info) {
		g.Info = info
	}
	for v := range wire.Elements(wire.Path(result, "_meta", wire.MetaReaches)) {
		if id, ok := wire.String(v); ok && len(id) <= 64 && len(g.Reaches) < maxReaches {
			g.Reaches = append(g.Reaches, id)
		}
	}
	g.Instructions, _ = wire.String(wire.Member(result, "instructions"))
	return g
}

// Modern returns an error of server/discover that only a modern server gives. After any
// other, initialize is the only thing left to try.
func Modern(e *wire.Error) error {
	switch e.Code {
	case wire.CodeHeaderMismatch, wire.CodeMissingCapability:
		return e
	}
	return nil
}
