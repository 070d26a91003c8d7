package shell

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/code"
	"sallyport.dev/sallyport/risk/shell/filter"
	"sallyport.dev/sallyport/risk/shell/known"
)

// deletes finds, in code of other languages, the calls that take something away.
var deletes = regexp.MustCompile(`(?i)rmtree|\bos['")]*\s*\.\s*(remove|unlink|removedirs|rmdir|truncate)|\bunlink\b|\brmSync|\bunlinkSync|\brm_rf|\brm_r\b|FileUtils|\.unlink\(|shutil|rimraf|\brm\s+-|rmdirSync|File\.delete|\bDROP\s+(TABLE|DATABASE)|\bTRUNCATE\s|\bDELETE\s+FROM|mkfs|\bdd\s+if=`)

// requiresJSON finds a file that looks as if it were only read.
var requiresJSON = regexp.MustCompile(`require\(\s*['"][./][^'"]*\.json['"]`)

// interpreter judges a program that runs code.
func (w *walk) interpreter(name string, args []arg, stdin string) bool {
	if known.Shells[name] {
		w.shell(name, args, stdin)
		return true
	}
	if m := known.Versioned.FindStringSubmatch(name); m != nil {
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
	flag, ok := known.Languages[name]
	if !ok {
		return false
	}
	if len(args) == 1 && args[0].Literal() {
		switch args[0].Text {
		case "--version", "-V", "-v", "--help", "-h":
			return true
		}
	}
	if strings.HasPrefix(name, "python") && len(args) > 1 && args[0].Is("-m") && w.module(args[1:]) || w.looks(name, args, stdin) {
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
	if name == "node" && requiresJSON.MatchString(program) {
		w.unknown("require runs what a link or a folder named .json leads to: JSON.parse(fs.readFileSync(…)) only reads")
	}
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
	case args[0].Is("this", "calendar", "platform", "sysconfig", "site", "tokenize", "dis", "ast", "tabnanny") && !slices.ContainsFunc(args[1:], func(a arg) bool { return a.Loose }):
		w.readsAll(args[1:])
		return true
	case args[0].Is("zipfile", "tarfile") && len(args) == 3 && args[1].Is("-l", "--list", "-t", "--test") && !args[2].Option():
		w.readsAll(args[2:])
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
func (w *walk) looks(name string, args []arg, stdin string) bool {
	given, ok := code.Given(name, args, cmp.Or(stdin, w.piped))
	if !ok {
		return false
	}
	look, ok := code.Looks(given)
	if !ok {
		return false
	}
	w.found.Effect(sallyport.EffectRead)
	for _, file := range look.Reads {
		w.reads(arg{Text: file, Known: true})
	}
	w.readsAll(given.Rest)
	if look.Environment {
		w.environmentRead()
	}
	if look.Unseen {
		w.secret = cmp.Or(w.secret, "files whose names are made at run time")
		w.found.Add(sallyport.Medium, "reads files whose names are made at run time")
	}
	if look.Imports && !given.Isolated {
		w.found.Add(sallyport.Medium, "runs %s code that imports modules, which files in the folder can replace", name)
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
	if strings.Contains(program, "ENVIRON") {
		w.environmentRead()
	}
	if !filter.AwkActs(program) {
		return
	}
	w.hide()
	w.unknown("runs an awk program that can run commands or write files")
	if deletes.MatchString(program) {
		w.lost("runs an awk program that deletes something")
	}
}

func (w *walk) sed(args []arg) {
	c := filter.ReadSed(args)
	if c.Odd != "" {
		w.unknown("sed is given %s", c.Odd)
	}
	for _, s := range c.Scripts {
		if !s.Known || !filter.SedEdits(s.Text) {
			w.hide()
			w.unknown("runs a sed script that can run commands or write files")
		}
		w.reads(s)
	}
	w.readsAll(c.Files)
	w.found.Effect(sallyport.EffectRead)
	if !c.InPlace {
		return
	}
	how := paths.Overwrites
	if c.Keeps {
		how = paths.Appends
	}
	w.changed("edits files in place")
	for _, a := range c.Files {
		w.writes(a, how)
	}
	if len(c.Files) == 0 && !c.Keeps {
		w.lost("edits files in place: what they held cannot be brought back")
	}
}
