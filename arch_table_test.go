package sallyport_test

// The tables of arch_test.go. Change them knowingly: each line says why.

// imports lists which packages of ours each package may import, apart from the
// root (the vocabulary), which all may. Only code counts, not tests. A package
// that is not here must be added, with its reasons.
var imports = map[string]edges{
	"": {}, // the vocabulary imports nothing of ours

	// Leaves: small, know nothing of a gateway, and may be imported anywhere.
	"wire":           {},
	"limit/gcra":     {},
	"redact/visible": {},

	// The path. It knows engines by its own interfaces only.
	"gateway": {},

	// Doors: they turn requests into operations. None imports what executes.
	// They take the path by an interface of their own.
	"mcpserver": {"wire": "speaks MCP in raw envelopes"},
	"adminapi":  {"gateway": "the shape of an explanation"},
	"cli": {
		"adminapi":       "the shapes of the API that it calls",
		"audit":          "verifies and exports the record offline",
		"bridge":         "the stdio command",
		"catalog":        "reads manifests to judge arguments offline",
		"catalog/lint":   "judges manifests offline",
		"gateway":        "the shape of an explanation",
		"cedar":          "checks policies offline",
		"config":         "where the record's heads are kept",
		"image":          "lists and builds images",
		"redact/visible": "nothing hidden reaches a terminal",
		"risk":           "judges offline",
		"store/sqlite":   "opens the database for reading",
	},
	"bridge": {"wire": "stdio in front, HTTP to the gateway behind"},

	// Engines: each implements an interface of gateway, for whose struct types it
	// may import gateway.
	"oauth":        {"limit/gcra": "slows guessing of secrets down"},
	"limit":        {"limit/gcra": "the algorithm"},
	"catalog":      {"wire": "strict JSON of definitions", "redact/visible": "hidden characters in descriptions"},
	"catalog/lint": {},
	"risk":         {"risk/finding": "what the judges report", "risk/pgsql": "PostgreSQL", "risk/litesql": "SQLite", "risk/shell": "shell commands", "risk/web": "HTTP requests and addresses"},
	"risk/finding": {},
	"risk/pgsql":   {"risk/finding": "what it reports"},
	"risk/litesql": {"risk/finding": "what it reports"},
	"risk/web":     {"risk/finding": "what it reports"},
	"risk/shell":   {"risk/finding": "what it reports", "risk/web": "addresses that curl and others are given"},
	"cedar":        {"gateway": "Question and Verdict"},
	"approval":     {"store": "the tickets' table, by interface"},
	"secret":       {"store": "the secrets' table, by interface", "audit": "a change of a secret is recorded"},
	"redact":       {"redact/visible": "makes hidden characters visible"},
	"audit":        {},
	"config":       {},
	"telemetry":    {},
	"store":        {},
	"store/sqlite": {
		"gateway": "Begin and Finish of Ledger",
		"audit":   "entries are sealed in the same transaction",
		"store":   "what it keeps besides calls",
	},
	"store/storetest": {
		"gateway": "Begin and Finish of Ledger",
		"audit":   "verifies the record after each test",
		"store":   "what a store keeps besides calls",
	},
	// What executes. Nothing but cmd imports these, so that no door reaches them
	// except through the path.
	"backend/upstream":       {"wire": "speaks MCP to servers", "backend/upstream/line": "reads what programs write", "backend/upstream/param": "arguments as headers"},
	"backend/upstream/line":  {"redact/visible": "shows what programs hide in their last words"},
	"backend/upstream/param": {"wire": "raw JSON and header values"},
	"backend/sandbox":        {"sandboxd/sandboxpb": "the sandbox host's protocol"},
	"backend/fake":           {},
	"backend/backendtest":    {},
	"sandboxd":               {"sandboxd/sandboxpb": "the protocol it serves", "gvisor": "runs the gVisor tier", "gvisor/cgroup": "bounds servers that run as a uid"},
	"sandboxd/sandboxpb":     {},
	"gvisor":                 {"gvisor/cgroup": "bounds memory and processes", "gvisor/payload": "tells the first process what to run"},
	"gvisor/cgroup":          {},
	"gvisor/gvisortest":      {"gvisor": "finds the host's ability", "image": "finds the default image"},
	"gvisor/payload":         {}, // read inside the sandbox: imports next to nothing
	"image":                  {},
	"image/buildimage":       {"image": "builds the default one"},

	// For tool authors; the only place of the MCP SDK.
	"toolkit": {},

	// Stage and measurements: real programs driven from outside.
	"demo":  {"toolkit": "the SQL server that is attacked is written with it"},
	"bench": {"wire": "speaks to a real gateway"},

	"test/bench":        {},
	"test/conformance":  {},
	"test/crash":        {},
	"test/escape/probe": {},
	"test/run":          {},
	"test/stage":        {},
}

// An edges maps each allowed import to its reason. Programs of cmd wire
// everything and may import all but each other.
type edges map[string]string

// doors must not reach any of executors, not even through others.
var (
	doors     = []string{"mcpserver", "adminapi", "bridge"}
	executors = []string{"backend/upstream", "backend/sandbox", "backend/fake", "sandboxd", "gvisor", "image"}
)

// sdk is the MCP SDK: it rounds numbers, drops fields and is slow, so it serves
// as a test client and in toolkit only.
const sdk = "github.com/modelcontextprotocol/go-sdk"

var sdkAllowed = []string{"toolkit"}

// Budgets in lines, code only: neither tests nor the suites of *test packages.
const (
	maxFuncLines    = 60 // at most 5 % of functions are longer
	hardFuncLines   = 100
	maxFileLines    = 400
	maxPackageLines = 2500
)

// A waiver lifts one budget to a limit of its own, for a reason. The name is
// that of a file, a function (FILE:NAME) or a package ("package DIR").
type waiver struct {
	lines int
	why   string
}

var waivers = map[string]waiver{}
