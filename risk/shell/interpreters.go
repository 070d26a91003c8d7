package shell

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport"
)

var shells = set(`sh bash dash ash zsh ksh mksh fish rbash`)

var languages = map[string]string{
	"python": "-c", "python2": "-c", "python3": "-c", "pypy": "-c", "pypy3": "-c", "perl": "-e", "ruby": "-e", "node": "-e", "nodejs": "-e", "deno": "eval",
	"bun": "-e", "php": "-r", "lua": "-e", "luajit": "-e", "tclsh": "", "Rscript": "-e", "R": "-e", "julia": "-e", "groovy": "-e", "scala": "-e", "osascript": "-e",
	"pwsh": "-c", "powershell": "-c", "guile": "-c", "erl": "-eval", "elixir": "-e", "ghc": "-e", "swift": "", "irb": "", "ipython": "-c", "m4": "", "bc": "", "dc": "",
}

var versioned = regexp.MustCompile(`^(python|perl|ruby|lua|php|node)[0-9.]+$`)

// deletes finds, in code of other languages, the calls that take something away.
var deletes = regexp.MustCompile(`(?i)rmtree|\bos['")]*\s*\.\s*(remove|unlink|removedirs|rmdir|truncate)|\bunlink\b|\brmSync|\bunlinkSync|\brm_rf|\brm_r\b|FileUtils|\.unlink\(|shutil|rimraf|\brm\s+-|rmdirSync|File\.delete|\bDROP\s+(TABLE|DATABASE)|\bTRUNCATE\s|\bDELETE\s+FROM|mkfs|\bdd\s+if=`)

var plainPrint = regexp.MustCompile(`^\s*print\(\s*(?:[0-9+\-*/%. ()]+|'[^'"\\{}]*'|"[^'"\\{}]*")\s*\)\s*;?\s*$`)

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
	}
	flag, ok := languages[name]
	if !ok {
		return false
	}
	if len(args) == 1 && args[0].literal() {
		switch args[0].text {
		case "--version", "-V", "-v", "--help", "-h":
			return true
		}
	}
	if strings.HasPrefix(name, "python") && len(args) > 1 && args[0].literal() && args[0].text == "-m" && args[1].literal() && args[1].text == "json.tool" {
		if len(args) > 3 {
			w.writesFile(args[3], false)
		}
		return true
	}
	w.opaque = true
	code := stdin
	for i, a := range args {
		if a.known && i+1 < len(args) && a.text == flag && args[i+1].known {
			code = args[i+1].text
			if strings.HasPrefix(name, "python") && len(args) == 2 && plainPrint.MatchString(code) {
				w.opaque = false
				return true
			}
		}
		if a.known && deletes.MatchString(a.text) {
			code = a.text
		}
	}
	if deletes.MatchString(code) {
		w.found.Lost("runs %s code that deletes something", name)
	}
	w.unknown("runs %s code, whose effect cannot be told", name)
	for _, a := range args {
		w.reads(a)
	}
	return true
}

func (w *walk) shell(name string, args []arg, stdin string) {
	for i, a := range args {
		switch {
		case a.loose:
			w.opaque = true
			w.unknown("%s is given a word that is made at run time", name)
			return
		case a.text == "--version" || a.text == "--help":
			return
		case a.text == "-n" && len(args) == i+2 && args[i+1].known:
			return // checks the syntax of a file
		case strings.HasPrefix(a.text, "--"):
		case strings.HasPrefix(a.text, "-") && strings.Contains(a.text, "c") && a.known:
			rest := args[i+1:]
			for len(rest) > 0 && strings.HasPrefix(rest[0].text, "-") {
				rest = rest[1:]
			}
			if len(rest) == 0 || !rest[0].known {
				w.opaque = true
				w.unknown("%s runs a script that is made at run time", name)
				return
			}
			w.script(rest[0].text)
			return
		case strings.HasPrefix(a.text, "-s"), strings.HasPrefix(a.text, "-") && a.text != "-":
		case a.text == "-":
		default:
			w.opaque = true
			w.found.Object(a.text)
			w.unknown("runs script %s, whose content cannot be seen here", a.text)
			return
		}
	}
	if stdin != "" {
		w.script(stdin)
		return
	}
	w.opaque = true
	w.unknown("%s runs what it reads on its input", name)
}

var awkActs = regexp.MustCompile(`system\s*\(|\|&?|\bgetline\b|>|@load|@include|\bclose\s*\(|\bENVIRON\b|extension\s*\(`)

// awkPlain is left out before awkActs is looked for: strings, a regular
// expression or a comparison where only a pattern can stand.
var awkPlain = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\|\||>=|^\s*!?/(?:[^/\\]|\\.)*/|^\s*(?:\$\w+|N[FR])\s*>\s*[0-9.]+\s*(?:\{|$)|if\s*\(\s*(?:\$\w+|N[FR])\s*>\s*[0-9.]+\s*\)`)

func (w *walk) awk(args []arg) {
	rest, ok := w.limited("awk", args, "-F= -v= --field-separator= --assign= -W=")
	if !ok || len(rest) == 0 {
		return
	}
	if !rest[0].known {
		w.opaque = true
		w.unknown("runs an awk program that is made at run time")
		return
	}
	program := rest[0].text
	if !awkActs.MatchString(awkPlain.ReplaceAllString(program, "0")) {
		return
	}
	w.opaque = true
	w.unknown("runs an awk program that can run commands or write files")
	if deletes.MatchString(program) {
		w.found.Lost("runs an awk program that deletes something")
	}
}

// sedScript accepts sed commands that only edit what flows through.
var sedScript = regexp.MustCompile(`^\s*(?:(?:[0-9$,~+]+|/(?:[^/\\]|\\.)*/I?)(?:,(?:[0-9$~+]+|/(?:[^/\\]|\\.)*/I?))?\s*!?\s*)?(?:[pdqDPghGHxnN=lQ]|s(?:/(?:[^/\\]|\\.)*/(?:[^/\\]|\\.)*/|\|(?:[^|\\]|\\.)*\|(?:[^|\\]|\\.)*\||#(?:[^#\\]|\\.)*#(?:[^#\\]|\\.)*#|,(?:[^,\\]|\\.)*,(?:[^,\\]|\\.)*,)[gpiI0-9]*|y/(?:[^/\\]|\\.)*/(?:[^/\\]|\\.)*/)\s*$`)

func (w *walk) sed(args []arg) {
	var scripts []arg
	inPlace := false
	rest := []arg(nil)
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.loose:
			w.unknown("sed is given a word that is made at run time")
			return
		case a.text == "-e" || a.text == "--expression":
			if i++; i < len(args) {
				scripts = append(scripts, args[i])
			}
		case strings.HasPrefix(a.text, "--expression="):
			scripts = append(scripts, arg{text: strings.TrimPrefix(a.text, "--expression="), known: a.known})
		case strings.HasPrefix(a.text, "-i") || strings.HasPrefix(a.text, "--in-place"):
			inPlace = true
		case a.text == "--help" || a.text == "--version":
			return
		case a.option():
			letters := a.text[1:]
			if strings.Trim(letters, "nErsuzi") != "" && a.text != "--quiet" && a.text != "--silent" && a.text != "--regexp-extended" {
				if strings.HasSuffix(letters, "e") && strings.Trim(letters, "nErsuze") == "" && i+1 < len(args) {
					i++
					scripts = append(scripts, args[i])
					continue
				}
				w.unknown("sed is given option %s, which is not known to be harmless", a.text)
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
		for part := range strings.SplitSeq(s.text, ";") {
			if !s.known || !sedScript.MatchString(part) && strings.TrimSpace(part) != "" && !sedScript.MatchString(s.text) {
				w.unknown("runs a sed script that can run commands or write files")
				break
			}
		}
	}
	for _, a := range rest {
		w.reads(a)
		if inPlace {
			w.writesFile(a, false)
		}
	}
	if inPlace {
		w.found.Add(sallyport.High, "edits files in place")
	}
}
