package sallyport

// A Receipt says how one sandboxed run was really held. Everything in it was
// read back from the running sandbox, or from what enforces it; nothing is
// copied from the request.
type Receipt struct {
	Tier      string        `json:"tier"`
	Platform  string        `json:"platform"`              // how the tier runs code: "systrap", "qemu"
	Accel     string        `json:"accelerator,omitempty"` // of a virtual machine: "kvm", "tcg"
	Runtime   string        `json:"runtime"`               // module version of the sandbox's kernel
	Kernel    string        `json:"kernel"`                // that the program sees
	Image     string        `json:"image"`                 // digest of the file that is the root, verified
	Warm      bool          `json:"warm"`                  // started before the call
	Exit      string        `json:"exit"`                  // exited, signaled, timeout, memory or failed
	Limits    AppliedLimits `json:"limits"`
	Egress    AppliedEgress `json:"egress"`
	Links     []string      `json:"network_links"`    // every network interface inside
	ReadOnly  bool          `json:"read_only_root"`   // as the sandbox's kernel has it
	NoNew     bool          `json:"no_new_privs"`     // of the program
	Unbounded bool          `json:"has_capabilities"` // that the program could gain one
}

// AppliedLimits are the limits in force.
type AppliedLimits struct {
	Memory    int64   `json:"memory_bytes"` // of the control group, less what the sandbox's own kernel is granted
	CPUs      float64 `json:"cpus"`         // of the control group
	Processes int     `json:"processes"`    // of the sandbox's kernel
	Disk      int64   `json:"disk_bytes"`   // of the file system behind all writable folders
	Output    int64   `json:"output_bytes"`
	Timeout   int64   `json:"timeout_ms"`
}

// AppliedEgress is the way out that was open.
type AppliedEgress struct {
	Rules    []string `json:"rules"`              // as the broker served them; none: nothing could be reached
	Injected []string `json:"injected,omitempty"` // secrets that the broker could add, as NAME at HOST:PORT
}
