package shell

import (
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/code"
)

var shells = set(`sh bash dash ash zsh ksh mksh fish rbash`)

var languages = map[string]string{
	"python": "-c", "python2": "-c", "python3": "-c", "pypy": "-c", "pypy3": "-c", "perl": "-e", "ruby": "-e", "node": "-e", "nodejs": "-e", "deno": "eval",
	"bun": "-e", "php": "-r", "lua": "-e", "luajit": "-e", "tclsh": "", "Rscript": "-e", "R": "-e", "julia": "-e", "groovy": "-e", "scala": "-e", "osascript": "-e",
	"pwsh": "-c", "powershell": "-c", "guile": "-c", "erl": "-eval", "elixir": "-e", "ghc": "-e", "swift": "", "irb": "", "ipython": "-c", "m4": "", "dc": "",
}

var versioned = regexp.MustCompile(`^(python|perl|ruby|lua|php|node)[0-9.]+$`)

// deletes finds, in code of other languages, the calls that take something away.
var deletes = regexp.MustCompile(`(?i)rmtree|\bos['")]*\s*\.\s*(remove|unlink|removedirs|rmdir|truncate)|\bunlink\b|\brmSync|\bunlinkSync|\brm_rf|\brm_r\b|FileUtils|\.unlink\(|shutil|rimraf|\brm\s+-|rmdirSync|File\.delete|\bDROP\s+(TABLE|DATABASE)|\bTRUNCATE\s|\bDELETE\s+FROM|mkfs|\bdd\s+if=`)

// interpreter judges a program that runs code.
func (w *walk) interpreter(name string, args []arg, stdin string) bool {
	if shells[name] {
		w.shell(name, args, stdin)
		return true
	}
	if m := versioned.FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	switch name {
	case "awk", "gawk", "mawk", "nawk":
		w.awk(args)
		return true
	case "sed":
		w.sed(args)
		return true
	case "bc":
		w.bc(args)
		return true
	}
	flag, ok := languages[name]
	if !ok {
		return false
	}
	if len(args) == 1 && args[0].Literal() {
		switch args[0].Text {
		case "--version", "-V", "-v", "--help", "-h":
			return true
		}
	}
	if strings.HasPrefix(name, "python") && len(args) > 1 && args[0].Is("-m") && w.module(args[1:]) || w.looks(name, flag, args, stdin) {
		return true
	}
	if code.Plain(name, args) {
		w.readsAll(args[2:])
		return true
	}
	program := stdin
	for i, a := range args {
		if a.Known && i+1 < len(args) && a.Text == flag && args[i+1].Known {
			program = args[i+1].Text
		}
		if a.Known && deletes.MatchString(a.Text) {
			program = a.Text
		}
	}
	w.hide()
	if deletes.MatchString(program) {
		w.lost("runs %s code that deletes something", name)
	}
	w.unknown("runs %s code, whose effect cannot be told", name)
	for _, a := range args {
		w.reads(a)
	}
	return true
}

// module judges the modules of Python that do no more than their names say.
func (w *walk) module(args []arg) bool {
	switch {
	case args[0].Is("json.tool"):
		if len(args) > 2 {
			w.writes(args[2], paths.Overwrites)
		}
		return true
	case args[0].Is("this", "calendar", "platform", "sysconfig", "site", "tokenize") && !slices.ContainsFunc(args[1:], func(a arg) bool { return a.Loose }):
		w.readsAll(args[1:])
		return true
	case args[0].Is("pip") && w.byVerb("pip", args[1:]):
		return true
	case args[0].Is("py_compile") && !slices.ContainsFunc(args[1:], arg.Option):
		w.readsAll(args[1:])
		w.changed("keeps compiled code beside the files")
		return true
	}
	return false
}

// looks judges code of few words, given as an argument or on the input, that
// only calculates, reads and prints.
func (w *walk) looks(name, flag string, args []arg, stdin string) bool {
	switch name {
	case "python3":
		name = "python"
	case "nodejs":
		name = "node"
	}
	program := ""
	switch {
	case len(args) > 1 && (args[0].Is(flag) || name == "node" && args[0].Is("-p", "-pe", "--print", "--eval")) && args[1].Known:
		program = args[1].Text
	case len(args) == 0 || len(args) == 1 && args[0].Is("-"):
		program = stdin
	}
	look, ok := code.Looks(name, program)
	if !ok || strings.TrimSpace(program) == "" {
		return false
	}
	w.found.Effect(sallyport.EffectRead)
	for _, file := range look.Reads {
		w.reads(arg{Text: file, Known: true})
	}
	if look.Imports {
		w.found.Add(sallyport.High, "runs %s code that imports modules, which files in the folder can replace", name)
	}
	return true
}

// bc calculates. Its language neither runs programs nor writes files.
func (w *walk) bc(args []arg) {
	rest, ok := w.limited("bc", args, "-l -q -s -w -i -h -v -L --mathlib --quiet --standard --warn --interactive --help --version")
	if ok {
		w.readsAll(rest)
	}
}

// shellOptions are those of a shell that change nothing about what it runs.
var shellOptions = set(`--norc --noprofile --posix --login --restricted --verbose --noediting --version --help --`)

func (w *walk) shell(name string, args []arg, stdin string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.Loose:
			w.hide()
			w.unknown("%s is given a word that is made at run time", name)
			return
		case a.Text == "--version" || a.Text == "--help":
			return
		case a.Text == "-n" && len(args) == i+2 && args[i+1].Known, a.Is("-xn", "-nx", "-nv", "-vn") && len(args) == i+2 && args[i+1].Known:
			return // checks the syntax of a file
		case strings.HasPrefix(a.Text, "--"):
			if !shellOptions[a.Text] {
				w.hide()
				w.unknown("%s is given option %s, which is not known", name, a.Text)
			}
		case strings.HasPrefix(a.Text, "-") && len(a.Text) > 1 && a.Known:
			if strings.ContainsAny(a.Text, "oO") {
				i++ // its value comes before the script
			}
			if strings.Contains(a.Text, "c") {
				w.given(name, args[min(i+1, len(args)):])
				return
			}
		case a.Text == "-":
		default:
			w.hide()
			w.found.Object(a.Text)
			w.unknown("runs script %s, whose content cannot be seen here", a.Text)
			return
		}
	}
	if stdin != "" {
		w.script(stdin)
		return
	}
	w.hide()
	w.unknown("%s runs what it reads on its input", name)
}

// given judges the script after sh -c.
func (w *walk) given(name string, rest []arg) {
	for len(rest) > 0 && strings.HasPrefix(rest[0].Text, "-") {
		rest = rest[1:]
	}
	if len(rest) == 0 || !rest[0].Known {
		w.hide()
		w.unknown("%s runs a script that is made at run time", name)
		return
	}
	w.script(rest[0].Text)
}

func (w *walk) awk(args []arg) {
	rest, ok := w.limited("awk", args, "-F= -v= --field-separator= --assign= --posix --traditional --re-interval --csv")
	if !ok || len(rest) == 0 {
		return
	}
	if !rest[0].Known {
		w.hide()
		w.unknown("runs an awk program that is made at run time")
		return
	}
	program := rest[0].Text
	if !code.AwkActs(program) {
		return
	}
	w.hide()
	w.unknown("runs an awk program that can run commands or write files")
	if deletes.MatchString(program) {
		w.lost("runs an awk program that deletes something")
	}
}

func (w *walk) sed(args []arg) {
	var scripts []arg
	inPlace, backup := false, false
	rest := []arg(nil)
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.Loose:
			w.unknown("sed is given a word that is made at run time")
			return
		case a.Text == "-e" || a.Text == "--expression":
			if i++; i < len(args) {
				scripts = append(scripts, args[i])
			}
		case strings.HasPrefix(a.Text, "--expression="):
			scripts = append(scripts, arg{Text: strings.TrimPrefix(a.Text, "--expression="), Known: a.Known})
		case strings.HasPrefix(a.Text, "-i") || strings.HasPrefix(a.Text, "--in-place"):
			inPlace = true
			backup = keepsBackup.MatchString(strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(a.Text, "-i"), "--in-place"), "="))
		case a.Text == "--help" || a.Text == "--version":
			return
		case a.Option():
			letters := a.Text[1:]
			if strings.Trim(letters, "nErsuzi") != "" && a.Text != "--quiet" && a.Text != "--silent" && a.Text != "--regexp-extended" {
				if strings.HasSuffix(letters, "e") && strings.Trim(letters, "nErsuze") == "" && i+1 < len(args) {
					i++
					scripts = append(scripts, args[i])
					continue
				}
				w.unknown("sed is given option %s, which is not known to be harmless", a.Text)
			}
			inPlace = inPlace || strings.Contains(letters, "i") && !strings.HasPrefix(letters, "-")
		default:
			rest = append(rest, a)
		}
	}
	if len(scripts) == 0 && len(rest) > 0 {
		scripts, rest = rest[:1], rest[1:]
	}
	for _, s := range scripts {
		if !s.Known || !code.SedEdits(s.Text) {
			w.hide()
			w.unknown("runs a sed script that can run commands or write files")
		}
		w.reads(s)
	}
	w.readsAll(rest)
	w.found.Effect(sallyport.EffectRead)
	if !inPlace {
		return
	}
	how := paths.Overwrites
	if backup {
		how = paths.Appends
	}
	w.changed("edits files in place")
	for _, a := range rest {
		w.writes(a, how)
	}
	if len(rest) == 0 && !backup {
		w.lost("edits files in place: what they held cannot be brought back")
	}
}

// keepsBackup tells the suffixes by which sed keeps what it edits.
var keepsBackup = regexp.MustCompile(`^[.~_-][\w.~-]+$|^~$`)
