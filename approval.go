package sallyport

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A TicketState is where a ticket stands.
type TicketState string

// The states of a ticket. Only pending moves to approved, rejected, expired or
// withdrawn; only approved moves to consumed or void.
const (
	TicketPending   TicketState = "pending"
	TicketApproved  TicketState = "approved"
	TicketRejected  TicketState = "rejected"
	TicketExpired   TicketState = "expired"   // nobody decided in time: counts as rejected
	TicketWithdrawn TicketState = "withdrawn" // the caller gave up
	TicketConsumed  TicketState = "consumed"  // its one execution began
	TicketVoid      TicketState = "void"      // approved, but not run in time, or no longer what holds
)

// A Binding is everything that an approval stands for. Its hash is the
// ticket's hash: change one byte of it and the approval no longer applies.
type Binding struct {
	Tenant      string          `json:"tenant"`
	Principal   string          `json:"principal"`
	OnBehalfOf  string          `json:"on_behalf_of"`
	Profile     string          `json:"profile"`
	Tool        string          `json:"tool"`
	ToolVersion string          `json:"tool_version"`
	ToolDigest  string          `json:"tool_digest"`
	Args        json.RawMessage `json:"args"`       // canonical
	Endpoint    string          `json:"endpoint"`   // upstream URL or command digest
	Credential  string          `json:"credential"` // identity, never the value
	Image       string          `json:"image"`
	Tier        string          `json:"tier"`
	Egress      []string        `json:"egress"`
	Plan        string          `json:"plan,omitempty"`    // digest of the saga's plan that a step belongs to, "" outside of sagas
	Saga        string          `json:"saga,omitempty"`    // ad-hoc saga that the call joins
	Witness     []Observation   `json:"witness,omitempty"` // what the target looked like when the ticket was opened
}

// An Observation is a look at what a call is about, taken by a read-only tool
// that the manifest names: a row count, a version, an ETag, the content behind
// a name. It is taken when the ticket is opened and again before the call runs.
type Observation struct {
	Name  string `json:"name"`            // the manifest's
	Value string `json:"value"`           // what was seen, shortened for people
	Hash  string `json:"sha256"`          // of all of it
	Binds string `json:"binds,omitempty"` // JSON Pointer of the argument whose content this is
}

// Hash returns the sha256 hex of the binding. Each field is written with its
// length first, so that no two bindings share an encoding.
func (b Binding) Hash() string {
	h := sha256.New()
	put := func(s string) {
		var n [8]byte
		for i, v := 0, uint64(len(s)); i < 8; i++ {
			n[i] = byte(v >> (8 * (7 - i)))
		}
		h.Write(n[:])
		h.Write([]byte(s))
	}
	list := func(all []string) {
		put(strconv.Itoa(len(all)))
		for _, s := range all {
			put(s)
		}
	}
	put("sallyport ticket v2")
	for _, s := range []string{
		b.Tenant, b.Principal, b.OnBehalfOf, b.Profile, b.Tool, b.ToolVersion, b.ToolDigest,
		string(b.Args), b.Endpoint, b.Credential, b.Image, b.Tier, b.Plan,
	} {
		put(s)
	}
	list(b.Egress)
	for _, o := range b.Witness {
		list([]string{o.Name, o.Value, o.Hash, o.Binds})
	}
	if b.Saga != "" { // another length than a witness: older hashes stay, and none is shared
		list([]string{"saga", b.Saga})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Differs says in which fields b is not o, as "tool_version: \"1\", was \"2\"",
// nil if in none. Fields that hold much are named only.
func (b Binding) Differs(o Binding) []string {
	var out []string
	x, y := reflect.ValueOf(b), reflect.ValueOf(o)
	for i := range x.NumField() {
		now, was := x.Field(i).Interface(), y.Field(i).Interface()
		if reflect.DeepEqual(now, was) || reflect.ValueOf(now).Kind() == reflect.Slice && x.Field(i).Len()+y.Field(i).Len() == 0 {
			continue
		}
		name, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
		if s, ok := now.(string); ok && len(s)+y.Field(i).Len() < 200 {
			name = fmt.Sprintf("%s: %q, was %q", name, s, was)
		}
		out = append(out, name)
	}
	return out
}

// A Ticket asks a human about one concrete call.
type Ticket struct {
	ID        string      `json:"id"`
	CallID    string      `json:"call_id"`
	Key       string      `json:"key"` // reservation key of the call it belongs to
	Binding   Binding     `json:"binding"`
	Hash      string      `json:"hash"`
	Risk      Risk        `json:"risk"`
	Policies  []string    `json:"policies"` // ids of the policies that demanded it
	State     TicketState `json:"state"`
	CreatedAt time.Time   `json:"created_at"`
	DecideBy  time.Time   `json:"decide_by"`
	RunBy     time.Time   `json:"run_by,omitzero"` // set with the decision
	DecidedBy string      `json:"decided_by"`
	DecidedAt time.Time   `json:"decided_at,omitzero"`
	Reason    string      `json:"reason"`
	Trace     string      `json:"trace"`
	NotesSaga bool        `json:"-"` // the binding says which ad-hoc saga the call joins; older programs did not note it

	Actor       string    `json:"actor,omitempty"`        // operator behind the agent's token: may not decide
	Demands     []Demand  `json:"demands,omitempty"`      // all must be met; none means one word of any admin
	Votes       []Vote    `json:"votes,omitempty"`        // in the order they came
	Unbound     []string  `json:"unbound,omitempty"`      // JSON Pointers of arguments whose content is not bound
	EscalatedAt time.Time `json:"escalated_at,omitzero"`  // when others were called in
	EscalatedTo []string  `json:"escalated_to,omitempty"` // groups that may decide, too, since then
	VoidReason  string    `json:"void_reason,omitempty"`  // why an approval no longer holds
	About       ToolNote  `json:"about,omitzero"`         // what people are told of the tool
}

// A ToolNote is what a human is shown of the tool that a ticket is about, as it
// was when the ticket was opened. Binding.ToolDigest covers it.
type ToolNote struct {
	Description string `json:"description,omitempty"` // the operator's, or the upstream's own words
	Server      string `json:"server,omitempty"`
	Language    string `json:"language,omitempty"` // of a manifest's code
	Code        string `json:"code,omitempty"`     // that a manifest brings
}

// Note is what an approver is told of a tool, beside its name.
func (t Tool) Note() ToolNote {
	n := ToolNote{Description: t.Description, Server: t.Origin.Server}
	if t.Code != nil {
		n.Language, n.Code = t.Code.Language, t.Code.Source
	}
	return n
}

// A Vote is one human's word on a ticket.
type Vote struct {
	By        string          `json:"by"` // admin name
	Groups    []string        `json:"groups,omitempty"`
	Approve   bool            `json:"approve"`
	Reason    string          `json:"reason,omitempty"`
	At        time.Time       `json:"at"`
	Door      string          `json:"door,omitempty"`      // "admin", "webhook", "passkey"
	Passkey   string          `json:"passkey,omitempty"`   // id of the passkey that signed the ticket's hash
	Signature json.RawMessage `json:"signature,omitempty"` // the assertion, for the auditor
}

// A Decision is a human's word on a ticket, as the store takes it.
type Decision struct {
	Ticket  string
	Approve bool
	By      string // admin name
	Reason  string
	At      time.Time

	Groups    []string // of the admin, as of At
	Door      string   // "admin", "webhook", "passkey"
	Passkey   string
	Signature json.RawMessage

	Hash string // of what was looked at, whole or its beginning; "" if the door does not say
	Seen string // the word at the end of the full view, for a ticket that is shown shortened
}
