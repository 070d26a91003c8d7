// Package npx reads command lines that name a package of npm, as npx does: which
// package is installed for a server in a sandbox, and which line cannot start there.
package npx

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

// A Command is a command line that names a package.
type Command struct {
	Spec string   // NAME or NAME@VERSION, as it was written
	Name string   // of the package
	Bin  string   // program of the package, "" for its only one
	Args []string // of that program
}

// runners run packages that cannot be installed here.
var runners = []string{"uvx", "uv", "pipx", "bunx", "bun", "pnpm", "pnpx", "yarn", "deno", "docker", "podman"}

// Parse tells whether a command line names a package, and which. A command line
// that is none, such as one of a program in the image, is not ok.
func Parse(argv []string) (c Command, ok bool, err error) {
	if len(argv) == 0 {
		return c, false, nil
	}
	rest := argv[1:]
	switch name := path.Base(argv[0]); {
	case name == "npx":
	case name == "npm" && len(rest) > 0 && (rest[0] == "exec" || rest[0] == "x"):
		rest = rest[1:]
	case slices.Contains(runners, name), name == "npm":
		return c, false, refused("use `npx -y NAME@VERSION`, a program of the image, or `isolation: uid`",
			"a server in gVisor cannot be started with %.40q: only packages of npm are installed for it", strings.Join(argv[:min(len(argv), 2)], " "))
	default:
		return c, false, nil
	}
	c, err = parseOptions(rest)
	return c, err == nil, err
}

// parseOptions reads what follows npx, as npx does.
func parseOptions(rest []string) (c Command, err error) {
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		word := rest[0]
		rest = rest[1:]
		name, value, has := strings.Cut(word, "=")
		switch {
		case word == "--":
			return c.program(rest)
		case word == "-y", word == "--yes", word == "-q", word == "--quiet":
		case name == "-p" || name == "--package":
			if !has {
				if len(rest) == 0 {
					return c, badOption(word)
				}
				value, rest = rest[0], rest[1:]
			}
			if c.Spec != "" {
				return c, badOption(word)
			}
			if err := c.pack(value); err != nil {
				return c, err
			}
		default:
			return c, badOption(word)
		}
	}
	return c.program(rest)
}

func badOption(word string) error {
	return refused("write npx -y NAME@VERSION ARG…", "npx's %.60q is not understood for a server in gVisor", word)
}

// program takes the package, if no option named it, or the program of it, and
// the arguments.
func (c Command) program(rest []string) (Command, error) {
	switch {
	case len(rest) == 0:
		return c, refused("write npx -y NAME@VERSION ARG…", "the command names no package to run")
	case c.Spec == "":
		if err := c.pack(rest[0]); err != nil {
			return c, err
		}
	default:
		if !programName.MatchString(rest[0]) {
			return c, badOption(rest[0])
		}
		c.Bin = rest[0]
	}
	c.Args = rest[1:]
	return c, nil
}

var (
	packageSpec = regexp.MustCompile(`^((?:@[a-z0-9~][a-z0-9._~-]{0,100}/)?[a-z0-9~][a-z0-9._~-]{0,100})(?:@([A-Za-z0-9.^~*+_-]{1,100}))?$`)
	programName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,100}$`)
)

// pack reads NAME[@VERSION]. Nothing else that npm takes is: a folder, an
// archive, a repository or an address cannot be pinned by a lock.
func (c *Command) pack(spec string) error {
	m := packageSpec.FindStringSubmatch(spec)
	if m == nil {
		return refused("name a package of the registry: NAME@VERSION", "%.120q is not the name of a package", spec)
	}
	c.Spec, c.Name = spec, m[1]
	return nil
}

func refused(hint, format string, args ...any) error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Execute, Hint: hint,
		Message: fmt.Sprintf(format, args...), Err: sallyport.ErrNotExecuted,
	}
}
