package greeting_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport/backend/upstream/greeting"
	"sallyport.dev/sallyport/wire"
)

func TestDiscovered(t *testing.T) {
	for said, want := range map[string]bool{
		`["2026-07-28"]`: true, `["2027-01-01","2026-07-28"]`: true, `["2025-11-25"]`: false, `[]`: false, `"2026-07-28"`: false, `[1]`: false,
	} {
		g, ok := greeting.Discovered(json.RawMessage(`{"supportedVersions":`+said+`,"capabilities":{"tools":{}},"instructions":"read","_meta":{"`+wire.MetaServerInfo+`":{"name":"x"}}}`), wire.Version2026_07_28)
		if ok != want || ok && (string(g.Info) != `{"name":"x"}` || string(g.Capabilities) != `{"tools":{}}` || g.Instructions != "read") {
			t.Errorf("%s: %+v, %t", said, g, ok)
		}
	}
}

func TestInitialized(t *testing.T) {
	for said, want := range map[string]string{`"2025-11-25"`: "2025-11-25", `"2024-11-05"`: "2024-11-05", `"2026-07-28"`: "", `"1999-01-01"`: "", `7`: ""} {
		g, version, err := greeting.Initialized(json.RawMessage(`{"protocolVersion":` + said + `,"serverInfo":{"name":"x"}}`))
		if version != want || (err == nil) != (want != "") || err == nil && string(g.Info) != `{"name":"x"}` {
			t.Errorf("%s: %+v, %q, %v", said, g, version, err)
		}
	}
}

// However much a server says of itself, what is kept is bounded.
func TestReachesAreBounded(t *testing.T) {
	ids := []string{`"` + strings.Repeat("x", 65) + `"`, "7"}
	for i := range 100 {
		ids = append(ids, fmt.Sprintf("%q", fmt.Sprint("gateway", i)))
	}
	g, _, err := greeting.Initialized(json.RawMessage(`{"protocolVersion":"2025-11-25","serverInfo":"none","_meta":{"` + wire.MetaReaches + `":[` + strings.Join(ids, ",") + `]}}`))
	if err != nil || g.Info != nil || len(g.Reaches) != 64 || g.Reaches[0] != "gateway0" {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestModern(t *testing.T) {
	for code, want := range map[int]bool{wire.CodeHeaderMismatch: true, wire.CodeMissingCapability: true, -32601: false, wire.CodeUnsupportedVersion: false} {
		if err := greeting.Modern(&wire.Error{Code: code}); (err != nil) != want {
			t.Errorf("%d: %v", code, err)
		}
	}
}
