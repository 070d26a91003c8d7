package known

import (
	"regexp"

	"sallyport.dev/sallyport/risk/shell/word"
)

// Shells run scripts of the shell.
var Shells = word.Set(`sh bash dash ash zsh ksh mksh fish rbash`)

// Languages are interpreters, with the option that gives them a program.
var Languages = map[string]string{
	"python": "-c", "python2": "-c", "python3": "-c", "pypy": "-c", "pypy3": "-c", "perl": "-e", "ruby": "-e", "node": "-e", "nodejs": "-e", "deno": "eval",
	"bun": "-e", "php": "-r", "lua": "-e", "luajit": "-e", "tclsh": "", "Rscript": "-e", "R": "-e", "julia": "-e", "groovy": "-e", "scala": "-e", "osascript": "-e",
	"pwsh": "-c", "powershell": "-c", "guile": "-c", "erl": "-eval", "elixir": "-e", "ghc": "-e", "swift": "", "irb": "", "ipython": "-c", "m4": "", "dc": "",
}

// Versioned are interpreters with a version in their name.
var Versioned = regexp.MustCompile(`^(python|perl|ruby|lua|php|node)[0-9.]+$`)

// Trusted are the folders whose programs are those of their names.
var Trusted = map[string]bool{"/bin": true, "/usr/bin": true, "/sbin": true, "/usr/sbin": true, "/usr/local/bin": true, "/usr/local/sbin": true}

// Dumps print whole databases.
var Dumps = word.Set(`pg_dump pg_dumpall mysqldump mariadb-dump`)
