package foreign

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

// A reader makes servers of the entries of one file.
type reader struct {
	env    Lookup
	inputs map[string]input // of VS Code: what it asks its user for
}

type input struct {
	ID       string
	Type     string
	Password bool
	Default  string
}

func inputsOf(raw json.RawMessage) map[string]input {
	var list []json.RawMessage
	out := map[string]input{}
	if json.Unmarshal(raw, &list) != nil {
		return out
	}
	for _, r := range list {
		var in input
		if json.Unmarshal(r, &in) == nil && in.ID != "" {
			out[in.ID] = in
		}
	}
	return out
}

// foreignKeys are the settings that are known here, and why those are left out that
// something is said of.
var foreignKeys = map[string]string{
	"type": "", "transport": "", "transportType": "", "command": "", "args": "", "env": "", "url": "", "serverUrl": "", "httpUrl": "", "headers": "", "disabled": "",
	"alwaysAllow": "every call is judged here", "autoApprove": "every call is judged here", "trust": "every call is judged here", "timeout": "set timeout here, if need be",
	"description": "", "name": "", "gallery": "", "version": "", "dev": "it is for development in VS Code", "cwd": "", "envFile": "",
	"tools": "profiles choose tools here", "includeTools": "profiles choose tools here", "excludeTools": "profiles choose tools here",
}

func (r reader) server(s *Server, raw json.RawMessage) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m == nil {
		s.Problem, s.Hint = "it is no object", "it needs a command, or a url"
		return
	}
	if _, err := sallyport.Canonical(raw); err != nil {
		s.Problem, s.Hint = fmt.Sprintf("it is no JSON that can be relied on: %.200s", err), "correct it in the file"
		return
	}
	e := entry{reader: r, s: s, m: m}
	e.read()
	if e.s.Problem != "" {
		e.s.Config, e.s.Secrets, e.s.Asks = nil, nil, nil
	}
}

// An entry is one server while it is read.
type entry struct {
	reader
	s *Server
	m map[string]json.RawMessage
	c Config
}

func (e *entry) refuse(hint, format string, args ...any) {
	if e.s.Problem == "" {
		e.s.Problem, e.s.Hint = fmt.Sprintf(format, args...), hint
	}
}

func (e *entry) note(format string, args ...any) {
	e.s.Notes = append(e.s.Notes, fmt.Sprintf(format, args...))
}

func (e *entry) text(key string) (s string) {
	raw, ok := e.m[key]
	if ok && json.Unmarshal(raw, &s) != nil {
		e.refuse("put it in quotes", "%s is no text", key)
	}
	if len(s) > maxText || strings.ContainsRune(s, 0) {
		e.refuse("shorten it", "%s is too long, or holds a NUL character", key)
	}
	return s
}

func (e *entry) read() {
	for _, key := range slices.Sorted(maps.Keys(e.m)) {
		if why, known := foreignKeys[key]; !known {
			e.note("its key %.40q is not known here, and left out", key)
		} else if why != "" {
			e.note("%s is left out: %s", key, why)
		}
	}
	link := e.text("url")
	for _, key := range []string{"serverUrl", "httpUrl"} {
		if s := e.text(key); link == "" {
			link = s
		}
	}
	kind := strings.ToLower(e.text("type") + e.text("transport") + e.text("transportType"))
	command := e.text("command")
	switch kind {
	case "", "stdio", "http", "streamable-http", "streamablehttp", "streamable_http", "remote", "local":
	case "sse":
		e.note("its transport is HTTP+SSE, of 2024: the streamable one is tried first")
	default:
		e.refuse("servers here are started by a command, or reached at a URL", "its transport %.40q is not supported", kind)
	}
	if json.Unmarshal(e.m["disabled"], &e.s.Disabled) == nil && e.s.Disabled {
		e.note("it is disabled in the file")
	}
	switch {
	case command != "" && link != "":
		e.refuse("keep one of the two", "it has both a command and a URL")
	case command != "":
		e.local(command)
	case link != "":
		e.remote(link)
	default:
		e.refuse("it needs a command, or a url", "it has neither a command nor a URL")
	}
	if e.s.Problem == "" {
		e.s.Config = &e.c
	}
}

func (e *entry) local(command string) {
	var args []string
	if raw, ok := e.m["args"]; ok && json.Unmarshal(raw, &args) != nil {
		e.refuse("write a list of texts", "args is no list of texts")
		return
	}
	if dir := e.text("cwd"); dir != "" {
		e.note("cwd is left out: a server starts in a folder of its own")
	}
	if e.text("envFile") != "" {
		e.refuse("put its variables into env", "envFile is not read: what is in it would have to be moved to the secret store unseen")
	}
	if len(args) > 1 && program(command) == "cmd" && strings.EqualFold(args[0], "/c") { // how Windows starts npx
		command, args = args[1], args[2:]
	}
	if program(command) == "npx" { // wherever it is on the machine that the file is from
		command = "npx"
	}
	if e.s.Problem == "" && e.bridged(command, args) {
		return
	}
	e.c.Command = e.plain("command", command)
	for i, a := range args {
		e.c.Args = append(e.c.Args, e.plain(fmt.Sprintf("args[%d]", i), a))
	}
	e.environment("env", e.m["env"], &e.c.Env)
	if e.s.Problem == "" {
		e.secretArgs()
	}
}

// program is the name of a program without its folder, and without what Windows puts
// behind it.
func program(command string) string {
	name := strings.ToLower(command[strings.LastIndexAny(command, `/\`)+1:])
	return strings.TrimSuffix(strings.TrimSuffix(name, ".exe"), ".cmd")
}

func (e *entry) remote(link string) {
	e.c.URL = e.plain("url", link)
	u, err := url.Parse(e.c.URL)
	switch {
	case e.s.Problem != "":
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		e.refuse("write https://HOST/PATH", "its url is not the address of a web server")
	case u.User != nil:
		e.refuse("send them as a header", "its url holds a name and password, which would be shown in lists and logs")
	case secretQuery(u):
		e.refuse("send it as a header, if the server takes one", "its url holds a secret, which would be shown in lists and logs")
	}
	e.environment("headers", e.m["headers"], &e.c.Headers)
}

func secretQuery(u *url.URL) bool {
	for name, values := range u.Query() {
		for _, v := range values {
			if secretName(name) && v != "" || secretValue(v) {
				return true
			}
		}
	}
	return false
}

// reference is a variable in a text, in any of the ways of the programs.
var reference = lazy(`\$\{(?:(env|input):)?([A-Za-z_][A-Za-z0-9_.-]*)(?::-([^}]*))?\}|\$\{[^}]*\}`)

// expand puts the values of variables in. secret reports whether one of them
// must not be shown; ask is the name of one that has no value.
func (e *entry) expand(s string) (out string, secret bool, ask string) {
	out = reference().ReplaceAllStringFunc(s, func(ref string) string {
		m := reference().FindStringSubmatch(ref)
		switch {
		case m[2] == "":
			ask = strings.Trim(ref, "${}")
			return ref
		case m[1] == "input":
			in := e.inputs[m[2]]
			secret = secret || in.Password
			if in.Default == "" {
				ask = m[2]
			}
			return in.Default
		}
		if v, ok := e.env(m[2]); ok {
			secret = secret || secretName(m[2]) || drawn(v)
			return v
		}
		if strings.Contains(ref, ":-") {
			return m[3]
		}
		ask = m[2]
		return ref
	})
	return out, secret, ask
}

// plain is a text that is shown as it is, so it must hold no secret.
func (e *entry) plain(what, s string) string {
	out, secret, ask := e.expand(s)
	switch {
	case len(out) > maxText || strings.ContainsRune(out, 0):
		e.refuse("shorten it", "%s is too long, or holds a NUL character", what)
	case secret || drawn(out):
		e.refuse("let it read the secret from its environment, or from a header", "%s holds a secret, which would be shown in lists of servers and processes", what)
	case ask != "":
		e.refuse("write it into the file, or set the variable", "%s needs a value for %.60q, and nothing here knows one", what, ask)
	}
	return out
}

// environment reads env or headers. What is or could be a secret is put aside.
func (e *entry) environment(what string, raw json.RawMessage, to *map[string]string) {
	if raw == nil || string(raw) == "null" {
		return
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		e.refuse("write NAME: value", "%s is no object", what)
		return
	}
	*to = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		var v string
		if json.Unmarshal(m[name], &v) != nil {
			switch v = string(m[name]); {
			case v == "null":
				continue
			case strings.ContainsAny(v[:1], "{["):
				e.refuse("write a text", "%s of %s is no text", name, what)
				continue
			}
		}
		(*to)[name] = e.value(what, name, v)
	}
}

// value is what stands in the configuration for one variable or header: itself,
// or the name of a secret.
func (e *entry) value(what, name, v string) string {
	out, secret, ask := e.expand(v)
	if len(out) > maxText || strings.ContainsAny(out, "\x00") || what == "headers" && strings.ContainsAny(out, "\r\n") {
		e.refuse("shorten it", "%s of %s is too long, or holds characters that it may not", name, what)
		return ""
	}
	if strings.Contains(out, "${secret:") {
		e.refuse("write the value, or the name of a variable", "%s of %s names a secret of this gateway: a file from elsewhere may not", name, what)
		return ""
	}
	if ask == "" && !secret && !secretName(name) && harmless(out) {
		return out
	}
	stored := secretIn(e.s.Name, name)
	if scheme, rest, ok := strings.Cut(out, " "); ok && what == "headers" && strings.EqualFold(name, "Authorization") && !strings.Contains(rest, " ") && len(scheme) < 12 {
		e.keep(stored, rest, ask)
		return scheme + " ${secret:" + stored + "}"
	}
	e.keep(stored, out, ask)
	return "${secret:" + stored + "}"
}

func (e *entry) keep(stored, value, ask string) {
	if ask != "" || value == "" {
		e.s.Asks = append(e.s.Asks, stored)
		return
	}
	if other, taken := e.s.Secrets[stored]; taken && other != value {
		e.refuse("rename one of them", "two of its secrets would have the name %s", stored)
	}
	e.s.Secrets[stored] = value
}

// secretIn is the name under which a value of a server is stored.
func secretIn(server, name string) string {
	clean := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '_' || r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '_'
	}, name)
	return server + "." + clean[:min(len(clean), 38)]
}

// bridged finds a command that only connects a program to a URL, which this
// gateway does itself.
func (e *entry) bridged(command string, args []string) bool {
	i := slices.IndexFunc(args, func(a string) bool { return a == "mcp-remote" || strings.HasPrefix(a, "mcp-remote@") })
	if i < 0 || command != "npx" {
		return false
	}
	link, headers, left := "", map[string]json.RawMessage{}, []string(nil)
	for j := i + 1; j < len(args); j++ {
		switch a := args[j]; {
		case link == "" && strings.HasPrefix(a, "http"):
			link = a
		case a == "--header" && j+1 < len(args):
			j++
			name, v, _ := strings.Cut(args[j], ":")
			headers[strings.TrimSpace(name)], _ = json.Marshal(e.bridgeEnv(strings.TrimSpace(v)))
		case a == "--allow-http" || a == "--transport" || a == "http-first" || a == "sse-first" || a == "http-only" || a == "sse-only":
		default:
			left = append(left, a)
		}
	}
	if link == "" {
		return false
	}
	for _, a := range left {
		e.note("mcp-remote's %.40q is left out", a)
	}
	e.note("mcp-remote is left out: the gateway connects to the address itself")
	e.m["headers"], _ = json.Marshal(headers)
	e.remote(link)
	return true
}

// bridgeEnv puts the variables of the entry's own env in.
func (e *entry) bridgeEnv(v string) string {
	env := map[string]string{}
	_ = json.Unmarshal(e.m["env"], &env) // it was read before
	return reference().ReplaceAllStringFunc(v, func(ref string) string {
		if own, ok := env[strings.Trim(ref, "${}")]; ok {
			return own
		}
		return ref
	})
}
