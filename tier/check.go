package tier

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport"
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

// Invalid is the error of a request that cannot be run as it is.
func Invalid(hint, format string, args ...any) error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Execute, Hint: hint,
		Message: fmt.Sprintf(format, args...), Err: sallyport.ErrNotExecuted,
	}
}

// Unavailable is the error of a host that cannot run what is asked.
func Unavailable(hint, format string, args ...any) *sallyport.Error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Hint: hint,
		Message: fmt.Sprintf(format, args...), Err: sallyport.ErrNotExecuted,
	}
}

// Check says why a request cannot be run, without running it.
func (r Request) Check() error {
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return Invalid("name a program", "no program to run")
	}
	size := 0
	for _, a := range r.Argv {
		if strings.ContainsRune(a, 0) {
			return Invalid("remove the NUL character", "an argument contains a NUL character")
		}
		size += len(a)
	}
	for _, e := range r.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || !validName(name) || strings.ContainsRune(e, 0) {
			return Invalid("use letters, digits and _ only", "%.64q is not the name of an environment variable", name)
		}
		size += len(e)
	}
	if size > maxArgv {
		return Invalid("pass large input as stdin or as files", "arguments and environment take %d bytes; at most %d fit", size, maxArgv)
	}
	if len(r.Stdin) > maxStdin {
		return Invalid("pass less input", "stdin has %d bytes; at most %d are taken", len(r.Stdin), maxStdin)
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
			return Invalid("raise the limit", "limit %s is %v; want at least %v", c.name, c.got, c.low)
		}
	}
	return nil
}

// checkFiles refuses names that could lead out of the working folder, and what
// would not fit, before anything runs.
func checkFiles(files []File, disk int64) error {
	if len(files) > maxFiles {
		return Invalid("pass fewer files", "%d files; at most %d are taken", len(files), maxFiles)
	}
	var total int64
	kind := map[string]bool{} // path → is a folder
	for _, f := range files {
		if err := CheckPath(f.Path); err != nil {
			return err
		}
		if _, ok := kind[f.Path]; ok {
			return Invalid("name each file once", "%.128q is given twice, or is a file and a folder at once", f.Path)
		}
		kind[f.Path] = false
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if isDir, ok := kind[dir]; ok && !isDir {
				return Invalid("name each file once", "%.128q is a file and a folder at once", dir)
			}
			kind[dir] = true
		}
		if total += int64(len(f.Content)); total > disk {
			return Invalid("pass less, or use a tool with a larger disk limit", "the files take more than the %d bytes of disk", disk)
		}
	}
	return nil
}

// CheckPath says why a name is none of a file in the working folder, or nil.
func CheckPath(p string) error {
	bad := func(why string) error {
		return Invalid("use a relative path without .., such as data/in.csv", "the file name %.128q %s", p, why)
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
