package shell

import (
	"path"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/known"
	"sallyport.dev/sallyport/risk/shell/word"
)

// wrapper judges a program that runs another by what it runs.
func (w *walk) wrapper(name string, args []arg, stdin string) bool {
	if len(args) == 1 && args[0].Is("--version", "--help") && (known.Wrapping[name].Options != "" || name == "env" || name == "xargs" || name == "find") {
		return true
	}
	switch name {
	case "env":
		w.env(args, stdin)
		return true
	case "xargs":
		w.xargs(args)
		return true
	case "find":
		w.find(args)
		return true
	case "eval":
		w.eval(args)
		return true
	case "watch":
		w.watch(args)
		return true
	case "su", "script", "parallel", "chroot", "unshare", "nsenter", "strace", "ltrace", "gdb", "trap", "source", ".",
		"ssh", "rsh", "entr", "ssh-agent", "dbus-run-session", "xvfb-run", "start-stop-daemon", "systemd-run", "expect", "screen", "tmux", "rlwrap":
		w.foreign(name, args)
		return true
	}
	wrap, ok := known.Wrapping[name]
	if !ok {
		return false
	}
	switch name {
	case "sudo", "doas", "runuser":
		w.found.Effect(sallyport.EffectPrivileges)
		outer := w.found
		w.found = finding.List{}
		defer func() { w.asAnother(outer, args) }()
		if name == "sudo" && len(args) == 1 && args[0].Is("-l", "-ll", "-v", "-V", "--list", "--validate", "--version") {
			return true // shows what is allowed
		}
	case "command":
		if len(args) > 0 && args[0].Literal() && (args[0].Text == "-v" || args[0].Text == "-V") {
			return true
		}
	}
	args, ok = w.skipOptions(name, args, wrap.Options)
	if !ok {
		return true
	}
	if name == "taskset" && len(args) > 0 && args[0].Literal() && strings.Trim(args[0].Text, "0123456789abcdefx,-") == "" {
		args = args[1:]
	}
	w.inner(name, args[min(wrap.Own, len(args)):], stdin)
	return true
}

// asAnother notes that a command acts as another user: one that only reads sees
// what its caller may not.
func (w *walk) asAnother(outer finding.List, args []arg) {
	level := sallyport.Medium
	own := slices.IndexFunc(args, func(a arg) bool { return !a.Option() })
	if w.found.Level() >= sallyport.High || word.Has(args[:max(0, own)], "-E", "-i", "-s", "-b", "-k", "-A", "--login", "--preserve-env") ||
		slices.ContainsFunc(args, func(a arg) bool { return a.Is("git", "less", "more", "man", "most") }) {
		level = sallyport.High
	}
	inner := w.found
	w.found = outer
	w.found.Append(&inner)
	w.found.Add(level, "acts with another user's privileges")
}

// skipOptions leaves out a wrapper's own options. It reports false when it
// cannot tell where the command begins.
func (w *walk) skipOptions(name string, args []arg, options string) ([]arg, bool) {
	r := word.ParseOptions(options).Read(args, true)
	if r.Bad == "" {
		return r.Rest, true
	}
	w.hide()
	w.unknown("%s is given option %s, which is not known", name, r.Bad)
	w.anywhere(args)
	return nil, false
}

func (w *walk) inner(name string, args []arg, stdin string) {
	for len(args) > 0 && (name == "sudo" || name == "doas") && args[0].Known && strings.Contains(args[0].Text, "=") {
		w.setsEnv(args[0])
		args = args[1:]
	}
	if len(args) == 0 {
		if name != "command" && name != "time" && name != "exec" && name != "nice" {
			w.unknown("%s runs what cannot be told", name)
		}
		return
	}
	w.command(args, stdin)
}

func (w *walk) setsEnv(a arg) {
	name, value, _ := strings.Cut(a.Text, "=")
	if known.Env(name) && !(a.Literal() && known.Harmless(name, value)) {
		w.hide()
		w.unknown("sets %s, which changes what other programs run", name)
	}
}

func (w *walk) env(args []arg, stdin string) {
	for len(args) > 0 {
		a := args[0]
		switch {
		case a.Loose:
			w.hide()
			w.unknown("env is given a word that is made at run time")
			return
		case a.Text == "-i" || a.Text == "-" || a.Text == "--ignore-environment" || a.Text == "-0" || a.Text == "--null" || a.Text == "--":
			args = args[1:]
		case (a.Text == "-u" || a.Text == "-C") && len(args) > 1:
			if a.Text == "-C" {
				w.enters(args[1])
			}
			args = args[2:]
		case strings.HasPrefix(a.Text, "-u") || strings.HasPrefix(a.Text, "--unset=") || strings.HasPrefix(a.Text, "--chdir="):
			args = args[1:]
		case a.Option():
			w.hide()
			w.unknown("env is given option %s, which can hide a command", a.Text)
			w.anywhere(append([]arg{{Text: strings.TrimPrefix(strings.TrimPrefix(a.Text, "-S"), "--split-string="), Known: a.Known}}, args[1:]...))
			return
		case strings.Contains(a.Text, "="):
			w.setsEnv(a)
			args = args[1:]
		default:
			w.command(args, stdin)
			return
		}
	}
	w.environmentRead()
}

// made stands for the words that xargs and find add when they run.
var made = arg{Text: "", Known: false, Loose: false}

func (w *walk) xargs(own []arg) {
	args, ok := w.skipOptions("xargs", own, "-0 -r -t -n= -L= -P= -I= -d= -s= -E= -a= -x -i[= -l[= -e[= --null --no-run-if-empty --max-args= --max-procs= --delimiter= --verbose --max-lines[= --replace[= --arg-file= --exit --max-chars= --eof[=")
	if !ok {
		return
	}
	w.readsAll(own[:len(own)-len(args)])
	if len(args) == 0 {
		return // prints its input
	}
	argv := append(append([]arg(nil), args...), made)
	// What xargs adds may be options. That matters where nothing else alarms.
	p, ok := known.Find(path.Base(args[0].Text))
	prints := p.Class == known.Read || p.Class == known.Show || p.Class == known.Net
	argv[len(argv)-1].Loose = !ok || prints && !p.Options.Safe()
	w.command(argv, "")
}

func (w *walk) find(args []arg) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.Loose:
			w.unknown("find is given a word that is made at run time")
		case known.FindTests[a.Text]:
			i++
		case known.FindFlags[a.Text]:
		case a.Text == "-delete":
			w.lost("deletes every file that it finds: they cannot be brought back")
		case a.Text == "-exec" || a.Text == "-execdir" || a.Text == "-ok" || a.Text == "-okdir":
			end := i + 1
			for end < len(args) && args[end].Text != ";" && args[end].Text != "+" {
				end++
			}
			inner := append([]arg(nil), args[min(i+1, len(args)):end]...)
			for k := range inner {
				if k > 0 && strings.Contains(inner[k].Text, "{}") {
					inner[k] = made
				}
			}
			w.command(inner, "")
			i = end
		case a.Text == "-fprint" || a.Text == "-fprint0" || a.Text == "-fls" || a.Text == "-fprintf":
			if i+1 < len(args) {
				w.writes(args[i+1], paths.Overwrites)
			}
			i++
		case a.Option():
			w.unknown("find is given %s, which is not known to be harmless", a.Text)
		default:
			w.reads(a)
		}
	}
}

// fd judges what it is told to run with what it finds.
func (w *walk) fd(name string, args []arg) bool {
	from := slices.IndexFunc(args, func(a arg) bool { return a.Is("-x", "-X", "--exec", "--exec-batch") })
	p, ok := known.Find(name)
	if !ok || from < 0 {
		return false
	}
	w.listed(name, p, args[:from])
	inner := append([]arg(nil), args[from+1:]...)
	for i := range inner {
		if inner[i].Is(";") || inner[i].Option() && inner[i].Is("-x", "-X", "--exec", "--exec-batch") {
			w.hide()
			w.unknown("%s is told to run more than one command", name)
			return true
		}
		if i > 0 && strings.Contains(inner[i].Text, "{") {
			inner[i] = made
		}
	}
	w.command(append(inner, made), "")
	return true
}

func (w *walk) eval(args []arg) {
	var words []string
	for _, a := range args {
		if !a.Known {
			w.hide()
			w.unknown("evaluates a command that is made at run time")
			return
		}
		words = append(words, a.Text)
	}
	w.script(strings.Join(words, " "))
}

// watch runs its words, joined by blanks, as a script again and again.
func (w *walk) watch(args []arg) {
	rest, ok := w.skipOptions("watch", args, "-n= -d -t -b -e -g -c -p -w -r --interval= --differences[= --no-title --beep --errexit --chgexit --color --precise --no-wrap --no-rerun --version --help")
	if ok {
		w.eval(rest)
	}
}

// foreign are programs that run commands in ways that are judged only where a
// plain script can be read.
func (w *walk) foreign(name string, args []arg) {
	if word.OnlyHelp(args) || len(args) == 0 && name == "trap" {
		return
	}
	if name == "ssh" || name == "rsh" {
		w.network(name)
	}
	if name == "trap" && args[0].Literal() {
		w.script(args[0].Text)
		return
	}
	w.hide()
	w.unknown("%s runs something that cannot be judged from here", name)
	w.anywhere(args)
	w.readsAll(args)
}

const maxTries = 64 // commands within words, of one text

// anywhere looks for what is taken away by a command that begins at any of the
// words, or is one of them. What it does not find proves nothing.
func (w *walk) anywhere(args []arg) {
	if w.tries == nil {
		w.tries = new(int)
	}
	for i, a := range args {
		if !a.Known || a.Text == "" {
			continue
		}
		if *w.tries++; *w.tries > maxTries {
			return
		}
		inner := &walk{judge: w.judge, scripts: w.scripts, wraps: w.wraps, tries: w.tries, vars: map[string]variable{}, funcs: map[string]uint{}}
		if strings.ContainsAny(a.Text, " ;&|\n`$(") {
			inner.script(a.Text)
		} else {
			inner.command(args[i:], "")
		}
		if r := inner.found.Risk(); r.Irreversible {
			w.found.Append(&inner.found)
			return
		}
	}
}
