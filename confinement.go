package sallyport

// A Confinement says what a third-party server in a sandbox may use. Only an
// operator writes one.
type Confinement struct {
	Limits Limits // zero fields are the sandbox host's defaults for servers; time and output do not apply
	State  int64  // bytes of its own folder, which outlives it; 0 is the default
	Egress []string
	Inject []Injected
	Roots  []Root
}

// A Root is a folder of the host that a server sees, at the same path.
type Root struct {
	Path     string
	Writable bool
}

// An Injected secret is added to requests to one host, outside of the sandbox.
type Injected struct {
	SecretGrant
	Value []byte
}
