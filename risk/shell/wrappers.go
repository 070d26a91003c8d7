package shell

import (
	"strings"

	"sallyport.dev/sallyport"
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
	case "watch", "su", "script", "parallel", "chroot", "unshare", "nsenter", "strace", "ltrace", "gdb", "trap", "source", ".",
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
		w.found.Add(sallyport.High, "acts with another user's privileges")
	case "command":
		if len(args) > 0 && args[0].literal() && (args[0].text == "-v" || args[0].text == "-V") {
			return true
		}
	}
	args, ok = w.skipOptions(name, args, set(wrap.options))
	if !ok {
		return true
	}
	if name == "taskset" && len(args) > 0 && args[0].literal() && strings.Trim(args[0].text, "0123456789abcdefx,-") == "" {
		args = args[1:]
	}
	w.inner(name, args[min(wrap.own, len(args)):], stdin)
	return true
}

// skipOptions leaves out a wrapper's own options. It reports false when it
// cannot tell where the command begins.
func (w *walk) skipOptions(name string, args []arg, known map[string]bool) ([]arg, bool) {
	for len(args) > 0 && args[0].option() {
		a := args[0]
		args = args[1:]
		switch {
		case a.loose:
			w.opaque = true
			w.unknown("%s is given an option that is made at run time", name)
			return nil, false
		case a.text == "--":
			return args, true
		case strings.HasPrefix(a.text, "--"):
			long, _, valued := strings.Cut(a.text, "=")
			if known[long+"="] && !valued && len(args) > 0 {
				args = args[1:]
			} else if !known[long] && !known[long+"="] {
				w.unknown("%s is given option %s, which is not known", name, long)
			}
		default:
			skip, bad := shortOptions(a.text[1:], known)
			if bad != "" {
				w.unknown("%s is given option %s, which is not known", name, bad)
			}
			if skip && len(args) > 0 {
				args = args[1:]
			}
		}
	}
	return args, true
}

func (w *walk) inner(name string, args []arg, stdin string) {
	for len(args) > 0 && (name == "sudo" || name == "doas") && args[0].known && strings.Contains(args[0].text, "=") {
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
	name, _, _ := strings.Cut(a.text, "=")
	if dangerousEnv(name) {
		w.unknown("sets %s, which changes what other programs run", name)
	}
}

func (w *walk) env(args []arg, stdin string) {
	for len(args) > 0 {
		a := args[0]
		switch {
		case a.loose:
			w.opaque = true
			w.unknown("env is given a word that is made at run time")
			return
		case a.text == "-i" || a.text == "-" || a.text == "--ignore-environment" || a.text == "-0" || a.text == "--null" || a.text == "--":
			args = args[1:]
		case (a.text == "-u" || a.text == "-C") && len(args) > 1:
			args = args[2:]
		case strings.HasPrefix(a.text, "-u") || strings.HasPrefix(a.text, "--unset=") || strings.HasPrefix(a.text, "--chdir="):
			args = args[1:]
		case a.option():
			w.opaque = true
			w.unknown("env is given option %s, which can hide a command", a.text)
			return
		case strings.Contains(a.text, "="):
			w.setsEnv(a)
			args = args[1:]
		default:
			w.command(args, stdin)
			return
		}
	}
	w.found.Add(sallyport.Medium, "prints the environment, which may hold secrets")
}

// made stands for the words that xargs and find add when they run.
var made = arg{text: "", known: false, loose: false}

func (w *walk) xargs(args []arg) {
	known := set("-0 -r -t -n= -L= -P= -I= -d= -s= -E= -a= -x --null --no-run-if-empty --max-args= --max-procs= --delimiter= --verbose --max-lines= --replace --arg-file=")
	for len(args) > 0 && args[0].option() {
		a := args[0]
		args = args[1:]
		long, _, valued := strings.Cut(a.text, "=")
		switch {
		case a.loose:
			w.unknown("xargs is given an option that is made at run time")
			return
		case a.text == "--":
		case strings.HasPrefix(a.text, "--"):
			if known[long+"="] && !valued && len(args) > 0 {
				args = args[1:]
			} else if !known[long] && !known[long+"="] {
				w.unknown("xargs is given option %s, which is not known", long)
			}
		default:
			skip, bad := shortOptions(a.text[1:], known)
			if bad != "" && bad != "-i" {
				w.unknown("xargs is given option %s, which is not known", bad)
			}
			if skip && len(args) > 0 {
				args = args[1:]
			}
		}
	}
	if len(args) == 0 {
		return // prints its input
	}
	argv := append(append([]arg(nil), args...), made)
	if base := args[0].text; base == "sh" || base == "bash" || base == "env" || base == "sudo" && len(args) == 1 {
		argv[len(argv)-1].loose = true
	}
	w.command(argv, "")
}

var findTests = set(`-name -iname -path -ipath -regex -iregex -type -size -mtime -mmin -atime -amin -ctime -cmin -newer -user -group -perm
	-maxdepth -mindepth -links -inum -samefile -fstype -printf -lname -wholename -uid -gid -newermt -newerct -regextype -used -xtype -context`)

var findFlags = set(`-print -print0 -ls -prune -quit -not -a -o -and -or ! ( ) , -depth -d -xdev -mount -follow -H -L -P -empty -readable -writable
	-executable -nouser -nogroup -daystart -true -false -noleaf -warn -nowarn -ignore_readdir_race`)

func (w *walk) find(args []arg) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.loose:
			w.unknown("find is given a word that is made at run time")
		case findTests[a.text]:
			i++
		case findFlags[a.text]:
		case a.text == "-delete":
			w.found.Lost("deletes every file that it finds: they cannot be brought back")
		case a.text == "-exec" || a.text == "-execdir" || a.text == "-ok" || a.text == "-okdir":
			end := i + 1
			for end < len(args) && args[end].text != ";" && args[end].text != "+" {
				end++
			}
			inner := append([]arg(nil), args[min(i+1, len(args)):end]...)
			for k := range inner {
				if k > 0 && strings.Contains(inner[k].text, "{}") {
					inner[k] = made
				}
			}
			w.command(inner, "")
			i = end
		case a.text == "-fprint" || a.text == "-fprint0" || a.text == "-fls" || a.text == "-fprintf":
			if i+1 < len(args) {
				w.writesFile(args[i+1], false)
			}
			w.found.Add(sallyport.High, "writes what it finds into a file")
			i++
		case a.option():
			w.unknown("find is given %s, which is not known to be harmless", a.text)
		default:
			w.reads(a)
		}
	}
}

func (w *walk) eval(args []arg) {
	var words []string
	for _, a := range args {
		if !a.known {
			w.opaque = true
			w.unknown("evaluates a command that is made at run time")
			return
		}
		words = append(words, a.text)
	}
	w.script(strings.Join(words, " "))
}

// foreign are programs that run commands in ways that are judged only where a
// plain script can be read.
func (w *walk) foreign(name string, args []arg) {
	if onlyHelp(args) || len(args) == 0 && name == "trap" {
		return
	}
	if name == "trap" && args[0].literal() {
		w.script(args[0].text)
		return
	}
	w.opaque = true
	w.unknown("%s runs something that cannot be judged from here", name)
	// What can be read of it still counts, for what it takes away.
	for i, a := range args {
		if a.known && (strings.Contains(a.text, " ") || i+1 < len(args) && losers[a.text] != "") {
			inner := &walk{judge: w.judge, scripts: w.scripts}
			text := a.text
			if losers[a.text] != "" {
				text = joined(args[i:])
			}
			inner.script(text)
			if r := inner.found.Risk(); r.Irreversible {
				w.found.Append(&inner.found)
			}
		}
	}
	for _, a := range args {
		w.reads(a)
	}
}

func joined(args []arg) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = "'" + strings.ReplaceAll(a.text, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
