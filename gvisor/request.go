package gvisor

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/payload"
)

const (
	maxFiles   = 1000
	maxArgv    = 1 << 20 // bytes of argv and environment together
	maxStdin   = 64 << 20
	maxDepth   = 32
	maxName    = 255
	minMemory  = 16 << 20
	minDisk    = 64 << 10
	maxProcess = 4096
)

// proxyURL is where a sandbox's proxy is. It is there whether or not anything
// may be reached: a refusal in words is better than a network that fails.
var proxyURL = fmt.Sprintf("http://127.0.0.1:%d", payload.ProxyPort)

const noProxy = "localhost,127.0.0.1,::1"

// trust tells the usual clients where the certificates are that they trust.
func trust() (env []string) {
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"} {
		env = append(env, name+"="+payload.Bundle)
	}
	return env
}

// environment is what every program starts with; a request's own variables win.
// What it runs for leaves results, or it serves.
func environment(own []string, serves bool) []string {
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=" + WorkDir, "USER=agent", "LOGNAME=agent",
		"LANG=C.UTF-8", "TZ=UTC", "TMPDIR=/tmp",
		"XDG_CACHE_HOME=" + WorkDir + "/.cache", "XDG_RUNTIME_DIR=/run",
		"MPLCONFIGDIR=" + WorkDir + "/.cache/matplotlib",
	}
	if !serves {
		env = append(env, outputEnv()...)
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		env = append(env, name+"="+proxyURL)
	}
	env = append(env, "NO_PROXY="+noProxy, "no_proxy="+noProxy, "NODE_USE_ENV_PROXY=1")
	kept := env[:0]
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !hasName(own, name) {
			kept = append(kept, e)
		}
	}
	return append(kept, own...)
}

func hasName(env []string, name string) bool {
	for _, e := range env {
		if strings.HasPrefix(e, name+"=") {
			return true
		}
	}
	return false
}

func invalid(hint, format string, args ...any) error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Execute, Hint: hint,
		Message: fmt.Sprintf(format, args...), Err: sallyport.ErrNotExecuted,
	}
}

// Check says why a request cannot be run, without running it.
func (r Request) Check() error {
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return invalid("name a program", "no program to run")
	}
	size := 0
	for _, a := range r.Argv {
		if strings.ContainsRune(a, 0) {
			return invalid("remove the NUL character", "an argument contains a NUL character")
		}
		size += len(a)
	}
	for _, e := range r.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || !validName(name) || strings.ContainsRune(e, 0) {
			return invalid("use letters, digits and _ only", "%.64q is not the name of an environment variable", name)
		}
		size += len(e)
	}
	if size > maxArgv {
		return invalid("pass large input as stdin or as files", "arguments and environment take %d bytes; at most %d fit", size, maxArgv)
	}
	if len(r.Stdin) > maxStdin {
		return invalid("pass less input", "stdin has %d bytes; at most %d are taken", len(r.Stdin), maxStdin)
	}
	if err := checkLimits(r.Limits); err != nil {
		return err
	}
	return checkFiles(r.Files, r.Limits.Disk)
}

func checkLimits(l sallyport.Limits) error {
	for _, c := range []struct {
		name     string
		bad      bool
		got, low any
	}{
		{"timeout", l.Timeout <= 0, l.Timeout, "more than 0"},
		{"memory", l.Memory < minMemory, l.Memory, minMemory},
		{"processes", l.Processes < 1 || l.Processes > maxProcess, l.Processes, fmt.Sprintf("1 to %d", maxProcess)},
		{"disk", l.Disk < minDisk, l.Disk, minDisk},
		{"output", l.Output < 1, l.Output, 1},
		{"cpus", !(l.CPUs >= 0.01 && l.CPUs <= 1024), l.CPUs, "0.01 to 1024"},
	} {
		if c.bad {
			return invalid("raise the limit", "limit %s is %v; want at least %v", c.name, c.got, c.low)
		}
	}
	return nil
}

// checkFiles refuses names that could lead out of the working folder, and what
// would not fit, before anything runs.
func checkFiles(files []File, disk int64) error {
	if len(files) > maxFiles {
		return invalid("pass fewer files", "%d files; at most %d are taken", len(files), maxFiles)
	}
	var total int64
	kind := map[string]bool{} // path → is a folder
	for _, f := range files {
		if err := CheckPath(f.Path); err != nil {
			return err
		}
		if _, ok := kind[f.Path]; ok {
			return invalid("name each file once", "%.128q is given twice, or is a file and a folder at once", f.Path)
		}
		kind[f.Path] = false
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if isDir, ok := kind[dir]; ok && !isDir {
				return invalid("name each file once", "%.128q is a file and a folder at once", dir)
			}
			kind[dir] = true
		}
		if total += int64(len(f.Content)); total > disk {
			return invalid("pass less, or use a tool with a larger disk limit", "the files take more than the %d bytes of disk", disk)
		}
	}
	return nil
}

// CheckPath says why a name is none of a file in the working folder, or nil.
func CheckPath(p string) error {
	bad := func(why string) error {
		return invalid("use a relative path without .., such as data/in.csv", "the file name %.128q %s", p, why)
	}
	switch {
	case p == "" || p == "." || strings.HasSuffix(p, "/"):
		return bad("names no file")
	case strings.HasPrefix(p, "/"):
		return bad("is absolute")
	case strings.ContainsRune(p, 0):
		return bad("contains a NUL character")
	case !utf8.ValidString(p):
		return bad("is not UTF-8")
	case path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../"):
		return bad("is not clean, or leads out of the working folder")
	}
	parts := strings.Split(p, "/")
	if len(parts) > maxDepth {
		return bad("is too deep")
	}
	for _, s := range parts {
		if len(s) > maxName {
			return bad("has a part longer than 255 bytes")
		}
	}
	return nil
}

func validName(s string) bool {
	for i, c := range []byte(s) {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// encode writes a request as sallyport-init reads it, in a sandbox of its own.
// Preconditions: r.Check() == nil.
func (r Request) encode(s *sandbox) []byte {
	return r.appendWork(s.appendNature(nil, r.Limits), s)
}

// appendNature writes what a sandbox is like, whatever runs in it.
func (s *sandbox) appendNature(b []byte, l sallyport.Limits) []byte {
	b = appendBounds(b, l)
	b = payload.Append(b, payload.Dir, []byte(WorkDir))
	return s.appendTrust(appendOutput(s.appendProxy(b, socketInside)))
}

func appendBounds(b []byte, l sallyport.Limits) []byte {
	b = payload.Append(b, payload.Disk, fmt.Appendf(nil, "size=%d,nr_inodes=%d", l.Disk, max(256, l.Disk/4096)))
	return payload.Append(b, payload.Procs, payload.AppendUint32(nil, uint32(l.Processes)))
}

func (s *sandbox) appendProxy(b []byte, socket string) []byte {
	if !s.mayOpen {
		socket = ""
	}
	return payload.Append(b, payload.Proxy, []byte(socket))
}

func (s *sandbox) appendTrust(b []byte) []byte {
	if s.ca.Cert == nil {
		return b
	}
	return payload.Append(b, payload.CA, s.ca.Cert)
}

// environment is what a program with these variables of its own starts with.
func (s *sandbox) environment(own []string, serves bool) []string {
	if s.ca.Cert != nil {
		own = append(trust(), own...)
	}
	return environment(own, serves)
}

// appendWork writes what to run, and that it runs now.
func (r Request) appendWork(b []byte, s *sandbox) []byte {
	return payload.Append(r.appendProgram(b, s), payload.Go, nil)
}

// appendProgram writes files, argv and environment.
func (r Request) appendProgram(b []byte, s *sandbox) []byte {
	b = r.appendFiles(b)
	for _, a := range r.Argv {
		b = payload.Append(b, payload.Arg, []byte(a))
	}
	for _, e := range s.environment(r.Env, r.serves) {
		b = payload.Append(b, payload.Env, []byte(e))
	}
	return b
}

func (r Request) appendFiles(b []byte) []byte {
	if r.Talk != nil {
		b = payload.Append(b, payload.Talk, nil)
	}
	made := map[string]bool{".": true}
	for _, f := range r.Files {
		b = appendFolders(b, path.Dir(f.Path), made)
		b = payload.Append(b, payload.File, []byte(f.Path))
		for c := f.Content; len(c) > 0; {
			n := min(len(c), payload.MaxRecord)
			b = payload.Append(b, payload.Data, c[:n])
			c = c[n:]
		}
	}
	return b
}

func appendFolders(b []byte, dir string, made map[string]bool) []byte {
	if made[dir] {
		return b
	}
	b = appendFolders(b, path.Dir(dir), made)
	made[dir] = true
	return payload.Append(b, payload.Folder, []byte(dir))
}
