package mcpserver

import (
	"net/http"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// Eras of the protocol.
const (
	modernEra = 1 << iota // stateless, 2026-07-28
	legacyEra             // with sessions, 2025-03-26 to 2025-11-25
)

// A method is one row of the table that the router reads: what the method is
// to the gateway, or why it needs no operation.
type method struct {
	name      string
	eras      int
	operation sallyport.Kind // "" if it needs none:
	reason    string
	run       func(*exchange) // nil for notifications, see exchange.notified
	streams   bool            // only there where there are streams
}

const filtered = "Gateway.List authenticates, admits and filters by the same policy that decides calls and readings"

// methods is everything that this door knows.
var methods = []method{
	{name: "tools/call", eras: modernEra | legacyEra, operation: sallyport.CallTool, run: (*exchange).callTool},
	{name: "tools/list", eras: modernEra | legacyEra, run: (*exchange).listTools, reason: filtered},
	{name: "resources/read", eras: modernEra | legacyEra, operation: sallyport.ReadResource, run: (*exchange).readResource},
	{name: "prompts/get", eras: modernEra | legacyEra, operation: sallyport.GetPrompt, run: (*exchange).getPrompt},
	{name: "completion/complete", eras: modernEra | legacyEra, operation: sallyport.Complete, run: (*exchange).complete},
	{name: "subscriptions/listen", eras: modernEra, operation: sallyport.Subscribe, run: (*exchange).listen, streams: true},
	{name: "resources/subscribe", eras: legacyEra, operation: sallyport.Subscribe, run: (*exchange).subscribe, streams: true},
	{name: "resources/unsubscribe", eras: legacyEra, run: (*exchange).unsubscribe, streams: true,
		reason: "changes only what this session hears"},
	{name: "resources/list", eras: modernEra | legacyEra, run: (*exchange).listResources, reason: filtered},
	{name: "resources/templates/list", eras: modernEra | legacyEra, run: (*exchange).listTemplates, reason: filtered},
	{name: "prompts/list", eras: modernEra | legacyEra, run: (*exchange).listPrompts, reason: filtered},
	{name: "tasks/get", eras: modernEra, operation: sallyport.CallTool, run: (*exchange).getTask},
	{name: "tasks/cancel", eras: modernEra, run: (*exchange).cancelTask,
		reason: "Gateway.Withdraw and Gateway.Later authenticate, and end what is the caller's own"},
	{name: "tasks/update", eras: modernEra, run: (*exchange).updateTask,
		reason: "Gateway.Later authenticates, and brings answers to a call of the caller's own"},
	{name: "server/discover", eras: modernEra, run: (*exchange).discover,
		reason: "says only what the program is; the caller is authenticated"},
	{name: "initialize", eras: legacyEra, run: (*exchange).initialize,
		reason: "opens a session that holds nothing but its owner; the caller is authenticated"},
	{name: "ping", eras: legacyEra, run: (*exchange).ping,
		reason: "says only that the session lives; the caller is authenticated"},
	{name: "logging/setLevel", eras: legacyEra, run: (*exchange).setLogLevel,
		reason: "changes only what this session hears of its own calls"},
	{name: "notifications/initialized", eras: legacyEra, reason: "changes nothing"},
	{name: "notifications/cancelled", eras: legacyEra,
		reason: "ends a call of the same session, which belongs to the caller"},
}

// supported lists the revisions that are served, the newest first.
var supported = []string{
	wire.Version2026_07_28, wire.Version2025_11_25, wire.Version2025_06_18, wire.Version2025_03_26,
}

const supportedJSON = `["2026-07-28","2025-11-25","2025-06-18","2025-03-26"]`

func unsupportedVersion(requested string) *wire.Error {
	data := wire.AppendString([]byte(`{"supported":`+supportedJSON+`,"requested":`), clip(requested))
	return &wire.Error{
		Code:    wire.CodeUnsupportedVersion,
		Message: "unsupported protocol version " + clip(requested),
		Data:    append(data, '}'),
	}
}

func (x *exchange) ping() {
	ctx, done, ok := x.callContext()
	if !ok {
		return
	}
	defer done()
	if ctx.Err() == nil {
		x.result([]byte("{}"))
	}
}

func (x *exchange) setLogLevel() {
	level, _ := wire.String(wire.Member(x.msg.Params, "level"))
	n := wire.LogRank(level)
	if n < 0 {
		x.fail(http.StatusOK, &wire.Error{Code: wire.CodeInvalidParams, Message: "level must be one of debug, info, notice, warning, error, critical, alert, emergency"})
		return
	}
	x.session.logLevel.Store(int32(n))
	x.result([]byte("{}"))
}
