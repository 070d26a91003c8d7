package foreign

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

// A description is server.json of the MCP registry, as far as it says how a
// server is reached. (schema 2025-12-11)
type description struct {
	Name     string
	Version  string
	Packages []pack
	Remotes  []remote
}

type pack struct {
	RegistryType         string
	RegistryBaseURL      string
	Identifier           string
	Version              string
	FileSha256           string
	Transport            struct{ Type string }
	RuntimeArguments     []argument
	PackageArguments     []argument
	EnvironmentVariables []field
}

type remote struct {
	Type      string
	URL       string
	Headers   []field
	Variables map[string]field
}

// A field is a value that somebody must, can or may give.
type field struct {
	Name       string
	Value      string
	Default    string
	IsRequired bool
	IsSecret   bool
	Variables  map[string]field
}

type argument struct {
	field
	Type      string // positional or named
	ValueHint string
}

// Page reads a registry's answer: a page of a list, or one server. next is the
// cursor of the following page, "" if there is none.
func Page(src []byte) (servers []Server, next string, err error) {
	root, err := object(src)
	if err != nil {
		return nil, "", err
	}
	if !has(root, "servers") {
		return []Server{published(src)}, "", nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(root["servers"], &list); err != nil || len(list) > maxServers {
		return nil, "", &sallyport.Error{Code: sallyport.Invalid, Message: "servers is no list of a registry, or one that is too long", Hint: "give the address of a registry that speaks version 0.1 of the MCP registry's API"}
	}
	for _, raw := range list {
		servers = append(servers, published(raw))
	}
	_ = json.Unmarshal(sub(root, "metadata")["nextCursor"], &next) // none, where it is no text
	return servers, next, nil
}

// published reads one server.json, alone or as a registry wraps it.
func published(src []byte) (s Server) {
	s.Secrets = map[string]string{}
	root, err := object(src)
	if err == nil {
		_, err = sallyport.Canonical(standard(src))
	}
	if err != nil {
		s.Name, s.Problem, s.Hint = "?", fmt.Sprintf("it is no JSON that can be relied on: %.200s", err), "its schema is that of the MCP registry, of 2025-12-11"
		return s
	}
	raw := root
	if has(root, "server") {
		raw = sub(root, "server")
	}
	var d description
	plain, err := json.Marshal(raw)
	if err == nil {
		err = json.Unmarshal(plain, &d)
	}
	if s.Name = Named(d.Name); s.Name != d.Name {
		s.Was = d.Name
	}
	if err != nil || s.Name == "" {
		s.Name, s.Problem, s.Hint = "?", "it is no server.json that can be read", "its schema is that of the MCP registry, of 2025-12-11"
		return s
	}
	switch status(root) {
	case "deleted":
		s.Problem, s.Hint = "the registry says that it was deleted", "look for what replaces it"
		return s
	case "deprecated":
		s.Notes = append(s.Notes, "the registry says that it is deprecated")
	}
	e := entry{reader: reader{env: func(string) (string, bool) { return "", false }}, s: &s}
	e.choose(d)
	if s.Problem != "" {
		s.Secrets, s.Asks = nil, nil
	} else {
		s.Config = &e.c
	}
	return s
}

// status is what the registry says of a server.
func status(root map[string]json.RawMessage) (status string) {
	for _, meta := range sub(root, "_meta") {
		var m struct{ Status string }
		if json.Unmarshal(meta, &m) == nil && m.Status != "" {
			status = m.Status
		}
	}
	return status
}

// choose takes the first package that can be run in a sandbox, else the first
// address.
func (e *entry) choose(d description) {
	var why []string
	for _, p := range d.Packages {
		if reason := unusable(p); reason != "" {
			why = append(why, reason)
			continue
		}
		e.npm(p)
		return
	}
	for _, r := range d.Remotes {
		if r.Type != "streamable-http" && r.Type != "sse" {
			why = append(why, fmt.Sprintf("its transport %.40q is not supported", r.Type))
			continue
		}
		e.address(r)
		return
	}
	if len(why) == 0 {
		why = []string{"it names neither a package nor an address"}
	}
	e.refuse("add it with `sallyport servers add`, if it can be installed in another way", "%s", strings.Join(why, "; "))
}

var exact = lazy(`^[0-9]+\.[0-9]+\.[0-9]+(?:[-+][A-Za-z0-9.+-]{1,60})?$`)

func unusable(p pack) string {
	switch {
	case p.RegistryType != "npm":
		return fmt.Sprintf("packages of %.20q are not installed here, only those of npm", p.RegistryType)
	case p.Transport.Type != "" && p.Transport.Type != "stdio":
		return fmt.Sprintf("a package that is a web server (%.20q) is not started here", p.Transport.Type)
	case !exact().MatchString(p.Version):
		return fmt.Sprintf("the version %.40q of its package is not exact", p.Version)
	case p.FileSha256 != "":
		return "its package has a fileSha256, which npm does not check"
	}
	return ""
}

func (e *entry) npm(p pack) {
	if b := strings.TrimSuffix(p.RegistryBaseURL, "/"); b != "" && b != "https://registry.npmjs.org" {
		e.note("its registry %.100q is left out: packages come from where the npm of this host gets them", b)
	}
	if len(p.RuntimeArguments) > 0 {
		e.note("runtimeArguments are left out: the package is installed once, and started without npx")
	}
	e.c.Command, e.c.Args = "npx", []string{"-y", p.Identifier + "@" + p.Version}
	for i, a := range p.PackageArguments {
		v, given := e.filled(a.field)
		what := fmt.Sprintf("its argument %d", i+1)
		if a.Name != "" {
			what = "its option " + a.Name
		}
		switch {
		case a.IsSecret && given:
			e.refuse("let it read the secret from its environment", "%s holds a secret, which would be shown in lists of servers and processes", what)
		case !given && (a.IsRequired || a.Type == "positional" && v == "" && a.IsSecret):
			e.refuse("add it with `sallyport servers add`, and the value", "%s (%.60s) needs a value", what, a.ValueHint)
		case !given:
		case a.Type == "named":
			e.c.Args = append(e.c.Args, e.plain(what, a.Name), e.plain(what, v))
		default:
			e.c.Args = append(e.c.Args, e.plain(what, v))
		}
	}
	e.c.Env = map[string]string{}
	e.fields("env", p.EnvironmentVariables, e.c.Env)
	if e.s.Problem == "" {
		e.secretArgs()
	}
}

func (e *entry) address(r remote) {
	link := r.URL
	for _, name := range names(link) {
		v, given := e.filled(r.Variables[name])
		if !given || r.Variables[name].IsSecret {
			e.refuse("add it with `sallyport servers add --url`", "its address needs a value for {%.40s}", name)
		}
		link = strings.ReplaceAll(link, "{"+name+"}", v)
	}
	e.m = map[string]json.RawMessage{}
	e.remote(link)
	e.c.Headers = map[string]string{}
	e.fields("headers", r.Headers, e.c.Headers)
}

// fields are variables or headers.
func (e *entry) fields(what string, list []field, to map[string]string) {
	for _, f := range list {
		v, given := e.filled(f)
		stored := secretIn(e.s.Name, f.Name)
		switch {
		case f.Name == "" || len(f.Name) > 128:
			e.note("one of its %s has no name, and is left out", what)
		case given && !f.IsSecret:
			to[f.Name] = e.value(what, f.Name, v)
		case given:
			e.keep(stored, v, "")
			to[f.Name] = "${secret:" + stored + "}"
		case f.IsRequired:
			prefix, _, found := strings.Cut(f.Value, "{")
			if !found || strings.Count(f.Value, "{") > 1 || !strings.HasSuffix(f.Value, "}") {
				prefix = ""
			}
			e.keep(stored, "", "asks")
			to[f.Name] = prefix + "${secret:" + stored + "}"
		default:
			e.note("%s of its %s is left out: it may be set, and the file has no value", f.Name, what)
		}
	}
}

// filled is the value of a field with its variables put in, and whether there
// is one.
func (e *entry) filled(f field) (string, bool) {
	v := f.Value
	for _, name := range names(v) {
		inner, ok := f.Variables[name]
		if !ok {
			continue // it stays as it is written
		}
		if inner.Value+inner.Default == "" {
			return "", false
		}
		v = strings.ReplaceAll(v, "{"+name+"}", inner.Value+map[bool]string{true: inner.Default}[inner.Value == ""])
	}
	if v == "" {
		v = f.Default
	}
	return v, v != ""
}

var placeholder = lazy(`\{([A-Za-z_][A-Za-z0-9_.-]{0,63})\}`)

func names(s string) (out []string) {
	for _, m := range placeholder().FindAllStringSubmatch(s, 32) {
		if !slices.Contains(out, m[1]) {
			out = append(out, m[1])
		}
	}
	return out
}
