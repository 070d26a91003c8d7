package adminapi

import (
	"context"
	"encoding/json"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
)

// The interfaces below are what this door needs. Only cmd/ wires them.

// A Caller runs operations through the path. (gateway)
type Caller interface {
	// Explain says how a call would be decided, and makes none.
	Explain(ctx context.Context, req sallyport.Request) (gateway.Explanation, error)
	Await(ctx context.Context, req sallyport.Request, wait time.Duration, waiting func(*sallyport.Error)) (sallyport.Result, error)
}

// Tokens issues short-lived tokens of agents. (oauth)
type Tokens interface {
	// Issue makes a token for one profile, "" is the default one.
	Issue(ctx context.Context, agent, profile, actor string) (token string, expires time.Time, err error)
}

// Logins remembers, for 10 minutes and only in memory, which human logged in
// from where. (oauth)
type Logins interface {
	// Login checks the password; failures are throttled.
	Login(ctx context.Context, peer Peer, name, password string) (expires time.Time, err error)
	Check(ctx context.Context, peer Peer) (name string, err error)
	Logout(peer Peer)
}

// Agents keeps the callers.
type Agents interface {
	ListAgents(ctx context.Context) ([]sallyport.Agent, error)
	// AddAgent and RotateAgent return the client secret, which is not kept.
	AddAgent(ctx context.Context, id string, roles []string, e sallyport.Entry) (secret string, err error)
	RotateAgent(ctx context.Context, id string, e sallyport.Entry) (secret string, err error)
	SetAgentState(ctx context.Context, id, state string, e sallyport.Entry) error
}

// Tickets keeps what waits for a human. (approval)
type Tickets interface {
	ListTickets(ctx context.Context, state string, limit int) ([]sallyport.Ticket, []TicketGroup, error)
	ShowTicket(ctx context.Context, id string) (ShownTicket, error)
	Decide(ctx context.Context, d sallyport.Decision) (sallyport.Ticket, error)
}

// Admins keeps the humans who decide.
type Admins interface {
	ListAdmins(ctx context.Context) ([]sallyport.Admin, error)
	// AddAdmin returns the password, which is not kept.
	AddAdmin(ctx context.Context, name string, groups []string, e sallyport.Entry) (password string, err error)
	SetAdminGroups(ctx context.Context, name string, groups []string, e sallyport.Entry) error
	// RemoveAdmin refuses to remove the last one.
	RemoveAdmin(ctx context.Context, name string, e sallyport.Entry) error
}

// Audit reads the record. (audit)
type Audit interface {
	Search(ctx context.Context, q AuditQuery) ([]AuditEntry, error)

	// Retire writes down where the log of a gateway ended that is gone for good,
	// and returns how many entries it has.
	Retire(ctx context.Context, log, by, reason string) (entries int64, err error)
}

// An AuditQuery selects entries; empty fields select all.
type AuditQuery struct {
	Call, Principal, Tool, Kind, Code, Text string
	Since, Until                            time.Time
	Limit                                   int
}

// An AuditEntry is one entry of the record.
type AuditEntry struct {
	Writer  string              `json:"writer"`
	Seq     int64               `json:"seq"`
	Time    time.Time           `json:"time"`
	Kind    sallyport.EntryKind `json:"kind"`
	CallID  string              `json:"call_id,omitempty"`
	Payload json.RawMessage     `json:"payload"`
}

// Tools is the operator's view of the catalogue. (catalog)
type Tools interface {
	AllTools(ctx context.Context) ([]sallyport.Tool, error)
	ShowTool(ctx context.Context, name string) (sallyport.Tool, error)
	DiffTool(ctx context.Context, name string) (ToolDiff, error)
	// ApproveTool refuses if the tool is no longer what has the digest; "" stands
	// for whatever it is.
	ApproveTool(ctx context.Context, name, digest string, e sallyport.Entry) error
}

// A ToolDiff is what became of a tool since it was pinned.
type ToolDiff struct {
	Diff    string   `json:"diff"`              // a line for each place
	Digest  string   `json:"digest"`            // of what it is now
	Version string   `json:"version,omitempty"` // that is pinned
	Next    string   `json:"next_version"`      // after an approval
	Change  string   `json:"change,omitempty"`  // wording, compatible or breaking
	Reasons []string `json:"reasons,omitempty"`
	Remarks []string `json:"remarks,omitempty"` // what to be wary of
}

// Servers keeps the upstreams. (upstream)
type Servers interface {
	ServerStatus(ctx context.Context) ([]ServerStatus, error)
	// AddServer takes the JSON form of one entry of `servers` in sallyport.yaml.
	AddServer(ctx context.Context, name string, config json.RawMessage, e sallyport.Entry) (ServerStatus, error)
	RemoveServer(ctx context.Context, name string, e sallyport.Entry) error
	// UpdateServer installs the package of a server afresh and starts it again.
	UpdateServer(ctx context.Context, name string, e sallyport.Entry) (ServerStatus, error)
}

// ServerLogins authorises the gateway at upstreams. (backend/upstream/authz)
type ServerLogins interface {
	// BeginLogin returns the address that a human opens.
	BeginLogin(ctx context.Context, server string, w LoginWish, by string) (ServerLogin, error)
	EndLogin(ctx context.Context, server string, w LoginWish, e sallyport.Entry) error
}

// A LoginWish says for whom a login is: an agent, a user, or the gateway.
type LoginWish struct {
	Agent  string `json:"agent,omitempty"`
	User   string `json:"user,omitempty"`
	Issuer string `json:"issuer,omitempty"` // confirms this authorization server
}

// A ServerLogin is one that a human can finish.
type ServerLogin struct {
	Server  string    `json:"server"`
	For     string    `json:"for"`
	URL     string    `json:"url"`
	Issuer  string    `json:"issuer"`
	Scopes  []string  `json:"scopes,omitempty"`
	Expires time.Time `json:"expires"`
}

// A ServerGrant is what the gateway may do at an upstream, and for whom.
type ServerGrant struct {
	For    string    `json:"for"` // gateway, agent:ID or user:NAME
	Issuer string    `json:"issuer,omitempty"`
	Scopes []string  `json:"scopes,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Wants  string    `json:"wants,omitempty"` // what is missing
}

// A ServerStatus says how one upstream is.
type ServerStatus struct {
	Name      string   `json:"name"`
	State     string   `json:"state"` // starting, ready, degraded, failed
	Era       string   `json:"era,omitempty"`
	Version   string   `json:"version,omitempty"`
	Isolation string   `json:"isolation"`
	Reaches   []string `json:"reaches,omitempty"` // of a server in a sandbox: host:port
	Sees      []string `json:"sees,omitempty"`    // and folders of the host
	Source    string   `json:"source"`            // configuration or database
	Command   string   `json:"command,omitempty"`
	OpenAPI   string   `json:"openapi,omitempty"` // the document of an HTTP API
	URL       string   `json:"url,omitempty"`     // of an MCP server, or where the calls of an API go
	Tools     int      `json:"tools"`
	Restarts  int      `json:"restarts"`
	Package   string   `json:"package,omitempty"` // what was installed for it just now, with its integrity
	Circuit   string   `json:"circuit,omitempty"` // closed: calls go to it; open: none does for a while; half_open: one does, to see
	Opened    uint64   `json:"opened,omitempty"`  // how often it was opened
	Error     string   `json:"error,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	Stderr    string   `json:"stderr,omitempty"`

	OAuth []ServerGrant `json:"oauth,omitempty"` // of a server that needs authorisation
}

// Reservations keeps what idempotency remembers.
type Reservations interface {
	ListReservations(ctx context.Context, state string, limit int) ([]sallyport.Reservation, error)
	ResolveReservation(ctx context.Context, r Resolution) error
}

// A Resolution is an operator's word on a call whose outcome is unknown.
type Resolution struct {
	Key    sallyport.ReservationKey
	Call   string // the execution that was looked at; "" will do where the key had one only
	State  sallyport.ReservationState
	By     string
	Reason string
	Result json.RawMessage // a CallToolResult, nil if nobody knows it
}

// Secrets keeps values that nobody can read back. (secret)
type Secrets interface {
	SetSecret(ctx context.Context, name, value, by string) error
	SecretNames(ctx context.Context) ([]string, error)
	RemoveSecret(ctx context.Context, name, by string) error
}

// Sandbox runs an operator's command. (backend/sandbox)
type Sandbox interface {
	RunCommand(ctx context.Context, c SandboxCommand) (SandboxResult, error)
	Running(ctx context.Context) ([]SandboxInfo, error)
	Tiers(ctx context.Context) ([]TierInfo, error) // each proven, as far as it was not
	Lack(ctx context.Context, tier string) error   // why no sandbox of a tier can be had, nil if one can
}

// A TierInfo says whether sandboxes of a tier can be had.
type TierInfo struct {
	Tier  string    `json:"tier"`
	Works bool      `json:"works"`
	Proof string    `json:"proof,omitempty"` // how a program ran in it
	Lack  string    `json:"lack,omitempty"`  // why none can
	Hint  string    `json:"hint,omitempty"`
	Since time.Time `json:"since,omitzero"` // of the proof, or of the last try
}

// A SandboxCommand is one command for `sallyport sandbox run`.
type SandboxCommand struct {
	Argv  []string `json:"argv"`
	Stdin []byte   `json:"stdin,omitempty"`
	Tier  string   `json:"tier,omitempty"` // "" or auto: as the gateway chooses
	Image string   `json:"image,omitempty"`

	Module *SandboxModule    `json:"module,omitempty"` // what runs, in a tier without programs; Argv are then its name and its arguments
	Files  map[string][]byte `json:"files,omitempty"`  // in the working folder

	Allow   []string `json:"allow,omitempty"`
	Timeout float64  `json:"timeout_seconds,omitempty"`
}

// A SandboxModule is code for a tier that is a runtime.
type SandboxModule struct {
	Language string `json:"language"` // javascript, wasm
	Code     []byte `json:"code"`
}

// A SandboxResult says how it ended.
type SandboxResult struct {
	ExitCode  int      `json:"exit_code"`
	Signal    string   `json:"signal,omitempty"`
	Stdout    []byte   `json:"stdout"`
	Stderr    []byte   `json:"stderr"`
	KilledBy  string   `json:"killed_by,omitempty"`
	LimitsHit []string `json:"limits_hit,omitempty"`
	Truncated bool     `json:"truncated"`
	SandboxID string   `json:"sandbox_id"`
	Tier      string   `json:"tier"`
	Duration  float64  `json:"duration_ms"`

	TierReason  string                 `json:"tier_reason,omitempty"`
	Connections []sallyport.Connection `json:"connections,omitempty"`
	Receipt     *sallyport.Receipt     `json:"receipt,omitempty"`
}

// A SandboxInfo is one running sandbox.
type SandboxInfo struct {
	ID      string    `json:"sandbox_id"`
	Tier    string    `json:"tier"`
	CallID  string    `json:"call_id,omitempty"`
	Started time.Time `json:"started"`
	State   string    `json:"state"` // running, or deleting: what is left of it cannot be deleted yet
}
