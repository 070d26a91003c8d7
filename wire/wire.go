// Package wire is MCP as bytes: JSON-RPC messages of every protocol revision,
// the HTTP header rules and server-sent events.
//
// Nothing here decodes what it need not know. A Message holds raw JSON, parts
// of it are looked up and replaced in place, and what is not touched leaves
// exactly as it came: unknown members, order, white space and number literals.
//
// One check comes first, Validate (ParseMessage calls it): strict UTF-8, no
// duplicate names at any depth, nothing before or after the one value, bounded
// nesting. Every other function that takes raw JSON expects valid JSON; given
// anything else it returns garbage or "not found", but never panics.
package wire

import "slices"

// Protocol revisions.
const (
	Version2026_07_28 = "2026-07-28" // stateless ("modern")
	Version2025_11_25 = "2025-11-25" // the last with sessions ("legacy")
	Version2025_06_18 = "2025-06-18"
	Version2025_03_26 = "2025-03-26"
	Version2024_11_05 = "2024-11-05" // stdio only, here
)

// Modern reports whether a revision carries its metadata in every request.
func Modern(version string) bool { return version == Version2026_07_28 }

// Error codes of JSON-RPC and MCP.
const (
	CodeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
)

// Keys of _meta.
const (
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"
	MetaSubscription       = "io.modelcontextprotocol/subscriptionId"
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"
	MetaProgressToken      = "progressToken"
	MetaTraceparent        = "traceparent"
	MetaTracestate         = "tracestate"
	MetaBaggage            = "baggage"
	MetaCallID             = "dev.sallyport/callId"
	MetaIdempotencyKey     = "dev.sallyport/idempotencyKey"
	MetaTicket             = "dev.sallyport/ticket"
	MetaReplay             = "dev.sallyport/replay"
	MetaTwin               = "dev.sallyport/twin"
	MetaSaga               = "dev.sallyport/saga"
	MetaReaches            = "dev.sallyport/reaches"
	MetaIncomplete         = "dev.sallyport/incomplete"
	MetaUnavailable        = "dev.sallyport/unavailable"
)

// HTTP header names, in Go's canonical form.
const (
	HeaderProtocolVersion = "Mcp-Protocol-Version"
	HeaderSessionID       = "Mcp-Session-Id"
	HeaderMethod          = "Mcp-Method"
	HeaderName            = "Mcp-Name"
	HeaderParamPrefix     = "Mcp-Param-"
	HeaderLastEventID     = "Last-Event-Id"
	HeaderIdempotencyKey  = "Idempotency-Key"
)

// Media types.
const (
	TypeJSON = "application/json"
	TypeSSE  = "text/event-stream"
)

// LogRank returns the rank of a log level's name (RFC 5424), -1 if it is none.
func LogRank(name string) int { return slices.Index(LogLevels, name) }

// LogLevels are the names of the levels, the least important first.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
