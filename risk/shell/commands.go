package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/known"
	"sallyport.dev/sallyport/risk/shell/verbs"
	"sallyport.dev/sallyport/risk/shell/word"
)

const maxWraps = 24 // wrappers around one command

func takesAway(name string) bool {
	p, ok := known.Find(name)
	return ok && p.Class == known.Lost
}

// command judges one command: its name and arguments, after expansion.
func (w *walk) command(argv []arg, stdin string) {
	if w.wraps++; w.wraps > maxWraps {
		w.unknown("the command is wrapped too often to judge")
		w.wraps--
		return
	}
	defer func() { w.wraps-- }()
	if len(argv) == 0 {
		return
	}
	name, args := argv[0], argv[1:]
	if !name.Literal() {
		w.hide()
		w.unknown("runs a command whose name is made at run time")
		if name.Known && name.Glob && matchesLoser(name.Text) {
			w.lost("the pattern %s can stand for a program that deletes", name.Text)
		}
		return
	}
	base := name.Text
	if strings.Contains(base, "/") {
		dir := path.Dir(path.Clean(base))
		base = path.Base(base)
		if !known.Trusted[dir] {
			w.hide()
			w.found.Object(name.Text)
			w.unknown("runs program %s, which is not known", name.Text)
			if !takesAway(strings.ToLower(base)) {
				w.readsAll(args)
				return
			}
		}
	}
	w.known(base, args, stdin)
}

func matchesLoser(pattern string) bool {
	for name := range known.Lose {
		if ok, err := path.Match(path.Base(pattern), name); ok && err == nil {
			return true
		}
	}
	return false
}

func (w *walk) known(name string, args []arg, stdin string) {
	if word.OnlyHelp(args) && !known.Shells[name] {
		if _, ok := known.Find(name); ok {
			return
		}
	}
	if (name == "k3s" || name == "microk8s") && len(args) > 0 && args[0].Is("kubectl") {
		name, args = "kubectl", args[1:]
	}
	if net, ok := verbs.Looks(name, args); ok {
		w.asksOrShows(name, net, args)
		return
	}
	if name == "openssl" && len(args) > 0 && args[0].Is("s_client") && !w.silent {
		w.hide()
		w.unknown("openssl s_client sends what it reads to another machine")
	}
	p, ok := known.Find(name)
	if (name == "fd" || name == "fdfind") && w.fd(name, args) {
		return
	}
	if ok && (p.Class == known.Open || p.Class == known.Lost) && len(args) > 0 && args[0].Literal() {
		if inner, two := known.Find(name + "-" + args[0].Text); two {
			p, args = inner, args[1:]
		}
	}
	switch {
	case strings.HasPrefix(name, "mkfs") || strings.HasPrefix(name, "mke2fs"):
		w.touched(args)
		w.found.Effect(sallyport.EffectDestroy)
		w.lost("makes a file system: what the device held cannot be brought back")
	case ok:
		w.listed(name, p, args)
	case w.wrapper(name, args, stdin), w.interpreter(name, args, stdin), w.special(name, args, stdin), w.contained(name, args, stdin), w.clouds(name, args), w.byVerb(name, args):
	default:
		w.hide()
		w.unknown("runs %s, which the analyser does not know", name)
		if takesAway(strings.ToLower(strings.TrimSuffix(name, ".exe"))) {
			w.lost("%s may be a program that deletes, where names do not tell upper from lower case", name)
		}
		w.readsAll(args)
	}
}

// asksOrShows notes a use of a program that only shows something. The words given to
// one that asks another machine are names of what lies there.
func (w *walk) asksOrShows(name string, net bool, args []arg) {
	w.found.Effect(sallyport.EffectRead)
	if name == "envsubst" {
		w.environmentRead()
	}
	if !net {
		w.readsAll(args)
		return
	}
	w.network(name)
	if slices.ContainsFunc(args, func(a arg) bool { return !a.Known }) {
		w.found.Add(sallyport.High, "%s is given a word that is made at run time, which can carry something out", name)
	}
}

// A use is how a listed program is used here.
type use struct {
	name                          string
	program                       known.Program
	rest                          []arg
	keeps, prints, loses, changes bool
	dest                          bool // an option names what is written over
}

// listed judges a program by its entry in the list.
func (w *walk) listed(name string, p known.Program, args []arg) {
	w.readsAll(args)
	r := p.Options.Read(args, false)
	if r.Bad != "" && p.Class != known.Lost && p.Class != known.Open && p.Class != known.Stop {
		w.unknown("%s is given option %s, which is not known to be harmless", name, r.Bad)
		r.Rest = args
	}
	u := use{name: name, program: p, rest: r.Rest}
	forced := false
	for _, g := range r.Given {
		forced = forced || g.Name == "-f" || g.Name == "--force" || g.Name == "-i" || g.Name == "--interactive" || known.BacksNothingUp(g)
		u.keeps, u.prints = u.keeps || g.Kind.Keeps, u.prints || g.Kind.Prints
		u.loses, u.changes = u.loses || g.Kind.Loses, u.changes || g.Kind.Changes
		if g.Kind.Over {
			u.dest = true
			w.writes(g.Value, paths.Overwrites)
			w.placeInto(g.Value, u.rest)
		}
	}
	u.keeps = u.keeps && (!forced || p.Class != known.Last)
	w.classed(u, args)
	w.quirk(u, args)
}

func (w *walk) classed(u use, args []arg) {
	p := u.program
	if p.Class == known.Open && bare[u.name] && len(args) == 0 {
		return
	}
	switch p.Class {
	case known.Read, known.Show, known.Net:
		w.onlyPrints(u)
	case known.High:
		w.high(u, args)
	case known.Over, known.Last:
		w.overwrites(u)
	case known.Lost:
		w.loser(u, args)
	case known.Open:
		w.hide()
		w.touched(args)
		w.unknown("%s %s", u.name, p.Does)
	case known.Stop:
		w.unknown("%s", p.Does)
	}
}

func (w *walk) onlyPrints(u use) {
	if u.program.Class == known.Net {
		w.network(u.name)
		if slices.ContainsFunc(u.rest, func(a arg) bool { return !a.Known }) {
			w.found.Add(sallyport.High, "%s asks for a name that is made at run time, which can carry something out", u.name)
		}
	}
	if u.program.Class == known.Read {
		w.found.Effect(sallyport.EffectRead)
	}
	switch {
	case u.loses:
		w.lost("%s writes over the files that it is given", u.name)
	case u.changes:
		w.changed("%s changes something", u.name)
	}
}

func (w *walk) touched(args []arg) {
	for _, a := range args {
		if a.Text != "" && !strings.HasPrefix(a.Text, "-") {
			w.found.Object(a.Text)
		}
	}
}

// bare are the programs that only show something when they are given no words.
var bare = set(`mount ulimit swapon ifconfig route umask alias sysctl update-alternatives bg fg`)

func (w *walk) high(u use, args []arg) {
	if u.prints && !u.loses && !u.program.Unpacks(args) || bare[u.name] && len(u.rest) == 0 && !u.changes || u.name == "ifconfig" && len(u.rest) == 1 {
		return
	}
	if u.name == "sysctl" && !slices.ContainsFunc(args, func(a arg) bool { return a.Text == "-w" || strings.Contains(a.Text, "=") || a.Loose }) {
		return
	}
	w.touched(args)
	if known.Dumps[u.name] && !u.dest {
		w.found.Effect(sallyport.EffectRead)
		w.found.Add(sallyport.Medium, "prints a whole database")
		return
	}
	w.changed("%s", u.program.Does)
	if u.loses {
		w.lost("%s is told to overwrite or delete: what was there cannot be brought back", u.name)
	}
	switch u.name {
	case "chmod", "chown", "chgrp", "setfacl", "chattr", "mount":
		w.found.Effect(sallyport.EffectPrivileges)
	case "setcap", "useradd", "adduser", "usermod", "passwd", "chpasswd", "chsh", "groupadd", "groupmod":
		w.found.Effect(sallyport.EffectPrivileges)
		w.found.Add(sallyport.Critical, "%s changes who may do what", u.name)
	case "mail", "mailx", "sendmail", "wall", "write":
		w.found.Effect(sallyport.EffectMessage)
		w.talks = cmp.Or(w.talks, u.name)
		if u.name != "wall" && u.name != "write" {
			w.found.Lost("%s sends a message: it cannot be called back", u.name)
		}
		return
	case "kill", "pkill", "killall", "renice", "ulimit", "logger":
		return
	}
	recursive := word.Has(args, "-R", "-r", "--recursive")
	for _, a := range u.rest {
		w.place(a)
		if u.name == "ln" {
			w.placeFolder(a)
		}
		if recursive && a.Is("/", "/*", "~", "/home", "/etc", "/usr", "/var") {
			w.lost("changes everything under %s", a.Text)
		}
	}
}

// overwrites judges the programs that write over files which may exist.
func (w *walk) overwrites(u use) {
	switch {
	case u.loses:
		w.lost("%s is told to delete: what was there cannot be brought back", u.name)
	case u.prints:
		return
	}
	how := paths.Overwrites
	if u.keeps {
		how = paths.Appends
	}
	if u.name == "scp" {
		w.network(u.name)
	}
	w.touched(u.rest)
	switch {
	case u.program.Class == known.Over && len(u.rest) == 0 && u.name == "tee":
	case u.program.Class == known.Over && u.name == "tee":
		for _, a := range u.rest {
			w.writes(a, how)
		}
	case u.program.Class == known.Over:
		for _, a := range u.rest {
			w.place(a)
		}
		w.changed("%s", u.program.Does)
		if !u.keeps {
			w.lost("%s: where they exist, what they held cannot be brought back", u.program.Does)
		}
	case u.dest:
	case len(u.rest) < 2:
		w.changed("%s", u.program.Does)
		if !u.keeps && slices.ContainsFunc(u.rest, func(a arg) bool { return !a.Known && a.Text == "" }) {
			w.lost("%s whose names are made at run time: where the last exists, what it held cannot be brought back", u.program.Does)
		}
	default:
		target := u.rest[max(0, len(u.rest)-1):]
		w.changed("%s", u.program.Does)
		for _, a := range target {
			if a.Is("/dev/null") && u.name == "mv" {
				w.lost("throws a file away: it cannot be brought back")
			}
			w.writes(a, how)
			w.placeInto(a, u.rest[:len(u.rest)-1])
		}
	}
}

// placeInto judges sources that keep their names in a folder.
func (w *walk) placeInto(folder arg, sources []arg) {
	w.placeFolder(folder)
	for _, s := range sources {
		w.placeFolder(s)
		w.place(arg{Text: strings.TrimSuffix(folder.Text, "/") + "/" + path.Base(s.Text)})
	}
}

func (w *walk) loser(u use, args []arg) {
	if u.prints {
		return
	}
	switch u.name {
	case "wipefs", "mkswap", "blkdiscard", "fdisk", "sfdisk", "cfdisk", "sgdisk", "parted", "lvremove", "vgremove", "pvremove", "zpool", "zfs", "cryptsetup", "mdadm", "dropdb", "nvme":
		w.found.Effect(sallyport.EffectDestroy)
	case "userdel", "deluser", "dropuser", "groupdel", "delgroup":
		w.found.Effect(sallyport.EffectPrivileges)
	}
	w.touched(args)
	if u.name == "rm" && len(args) > 0 && !slices.ContainsFunc(args, func(a arg) bool { return !a.Option() && (!a.Fresh || a.Text != "") || a.Loose }) {
		w.changed("deletes what the script itself has made")
		return
	}
	w.lost("%s", u.program.Does)
	for _, a := range args {
		switch a.Text {
		case "/", "/*", "/home", "/etc", "/usr", "/var", "~", "~/", "*", ".", "./*", "$HOME":
			w.lost("deletes everything under %s", a.Text)
		}
	}
}

// byVerb judges programs such as npm and apt by their sub-command.
func (w *walk) byVerb(name string, args []arg) bool {
	ok, opaque := verbs.Judge(&w.found, name, args)
	if opaque {
		w.hide()
	}
	return ok
}
