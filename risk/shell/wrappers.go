package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/known"
	"sallyport.dev/sallyport/risk/shell/word"
)

// wrapping are the programs that run another, with the options they may have
// before it and how many words of their own come first.
var wrapping = map[string]struct {
	options string
	own     int
}{
	"nice": {"-n= --adjustment= -#", 0}, "ionice": {"-c= -n= -t --class= --classdata= --ignore", 0}, "nohup": {"", 0},
	"timeout": {"-k= -s= -v --kill-after= --signal= --foreground --preserve-status --verbose", 1},
	"stdbuf":  {"-i= -o= -e= --input= --output= --error=", 0}, "setsid": {"-c -f -w --ctty --fork --wait", 0},
	"time": {"-p -v --portability --verbose -f= --format=", 0}, "chrt": {"-b -f -i -o -r", 1}, "taskset": {"-c= --cpu-list=", 0},
	"sudo": {"-u= -g= -E -H -i -n -S -k -b -A -s -p= --user= --group= --preserve-env --login --non-interactive --stdin --set-home", 0},
	"doas": {"-n -s -u=", 0}, "command": {"-p", 0}, "builtin": {"", 0}, "exec": {"-c -l -a=", 0}, "chronic": {"", 0},
	"unbuffer": {"-p", 0}, "proxychains": {"-q", 0}, "busybox": {"", 0}, "toybox": {"", 0}, "flock": {"-s -x -n -u -w= -e -o -E=", 1},
	"runuser": {"-u=", 0}, "setarch": {"-R", 0}, "linux64": {"", 0}, "linux32": {"", 0},
}

// wrapper judges a program that runs another by what it runs.
func (w *walk) wrapper(name string, args []arg, stdin string) bool {
	if len(args) == 1 && args[0].Is("--version", "--help") && (wrapping[name].options != "" || name == "env" || name == "xargs" || name == "find") {
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
	wrap, ok := wrapping[name]
	if !ok {
		return false
	}
	switch name {
	case "sudo", "doas", "runuser":
		w.found.Effect(sallyport.EffectPrivileges)
		w.found.Add(sallyport.High, "acts with another user's privileges")
		if name == "sudo" && len(args) == 1 && args[0].Is("-l", "-ll", "-v", "-V", "--list", "--validate", "--version") {
			return true // shows what is allowed
		}
	case "command":
		if len(args) > 0 && args[0].Literal() && (args[0].Text == "-v" || args[0].Text == "-V") {
			return true
		}
	}
	args, ok = w.skipOptions(name, args, wrap.options)
	if !ok {
		return true
	}
	if name == "taskset" && len(args) > 0 && args[0].Literal() && strings.Trim(args[0].Text, "0123456789abcdefx,-") == "" {
		args = args[1:]
	}
	w.inner(name, args[min(wrap.own, len(args)):], stdin)
	return true
}

// skipOptions leaves out a wrapper's own options. It reports false when it
// cannot tell where the command begins.
func (w *walk) skipOptions(name string, args []arg, known string) ([]arg, bool) {
	r := word.ParseOptions(known).Read(args, true)
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
	name, _, _ := strings.Cut(a.Text, "=")
	if known.Env(name) {
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
	w.secret = cmp.Or(w.secret, "the environment")
	w.found.Add(sallyport.Medium, "prints the environment, which may hold secrets")
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

var findTests = set(`-name -iname -iwholename -path -ipath -regex -iregex -type -size -mtime -mmin -atime -amin -ctime -cmin -newer -user -group -perm
	-maxdepth -mindepth -links -inum -samefile -fstype -printf -lname -wholename -uid -gid -newermt -newerct -regextype -used -xtype -context`)

var findFlags = set(`-print -print0 -ls -prune -quit -not -a -o -and -or ! ( ) , -depth -d -xdev -mount -follow -H -L -P -empty -readable -writable
	-executable -nouser -nogroup -daystart -true -false -noleaf -warn -nowarn -ignore_readdir_race`)

func (w *walk) find(args []arg) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.Loose:
			w.unknown("find is given a word that is made at run time")
		case findTests[a.Text]:
			i++
		case findFlags[a.Text]:
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
