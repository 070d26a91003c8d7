package shell

import (
	"cmp"
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/known"
)

var harmlessDevices = set(`/dev/null /dev/stdout /dev/stderr /dev/tty /dev/fd/1 /dev/fd/2 /dev/zero /dev/full /dev/urandom /dev/random /dev/stdin`)

func (w *walk) redirect(r *syntax.Redirect) {
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return
	}
	args := w.expand(r.Word)
	if len(args) != 1 {
		w.unknown("redirects to what cannot be told")
		return
	}
	target := args[0]
	if (r.Op == syntax.DplOut || r.Op == syntax.DplIn) && target.Literal() && strings.Trim(target.Text, "0123456789-") == "" {
		return
	}
	switch r.Op {
	case syntax.RdrIn, syntax.DplIn:
		w.reads(target)
		if isNetwork(target.Text) {
			w.network(target.Text)
			w.downloads = "here"
			if !target.Known {
				w.unknown("opens a network connection to where cannot be told")
			}
		}
	case syntax.AppOut, syntax.AppAll:
		w.writes(target, paths.Appends)
	case syntax.RdrInOut: // truncates nothing, and yet what is written begins at the start
		w.reads(target)
		w.writes(target, paths.Overwrites)
	case syntax.RdrClob:
		w.writes(target, paths.Overwrites)
	default:
		if w.keeps > 0 && r.Pos().Offset() >= w.keeps {
			w.writes(target, paths.Creates)
			return
		}
		w.writes(target, paths.Overwrites)
	}
}

func isNetwork(path string) bool {
	return strings.HasPrefix(path, "/dev/tcp/") || strings.HasPrefix(path, "/dev/udp/")
}

// writes judges a file that is written. Where nothing says that it does not
// exist, it is taken to: what it held is gone.
func (w *walk) writes(target arg, use paths.Use) {
	name := target.Text
	if harmlessDevices[name] && target.Literal() {
		return
	}
	w.found.Object(name)
	switch {
	case isNetwork(name):
		w.network(name)
		w.unknown("opens a network connection by %s", name)
		return
	case strings.HasPrefix(name, "/dev/") && !strings.HasPrefix(name, "/dev/shm/"):
		w.found.Effect(sallyport.EffectDestroy)
		w.lost("writes to device %s, past every file system", name)
		return
	}
	w.place(target)
	shown := name
	if !target.Known {
		shown = "whose name is made at run time"
	}
	switch {
	case target.Fresh, use == paths.Creates:
		w.changed("makes file %s", shown)
	case use == paths.Appends:
		w.changed("adds to file %s", shown)
	default:
		w.found.Effect(sallyport.EffectWrite)
		w.lost("writes over file %s: if it exists, what it held cannot be brought back", shown)
	}
}

// place notes a path where what is written is run or obeyed later.
func (w *walk) place(target arg) {
	if base := path.Base(target.Text); target.Known && len(base) > 1 && (base[0] == '-' || base[0] == '|' || base[len(base)-1] == '|') {
		w.found.Object(target.Text)
		w.unknown("makes %q: where a pattern stands for it, programs take it for an option or a command", base)
	}
	for _, name := range w.ways(target.Text) {
		if paths.Executed(name) {
			w.found.Object(target.Text)
			w.found.Effect(sallyport.EffectExecute)
			w.unknown("changes %s, which the system or others run or obey", name)
			return
		}
	}
}

// placeFolder judges a link or a copy, which may be a folder with code.
func (w *walk) placeFolder(target arg) {
	if paths.ShadowsAsFolder(target.Text) {
		w.found.Object(target.Text)
		w.found.Effect(sallyport.EffectExecute)
		w.unknown("makes %s, which Python would run in place of its own module of that name", target.Text)
	}
}

// ways are the paths that a name can stand for, given the folders that the
// script makes its own.
func (w *walk) ways(name string) []string {
	out := []string{name}
	if name == "" || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "~") {
		return out
	}
	for _, f := range w.folders {
		out = append(out, strings.TrimSuffix(f, "/")+"/"+name)
	}
	return out
}

// reads notes a file that is read, if it is secret.
func (w *walk) reads(a arg) {
	ways := w.ways(a.Text)
	if _, file, ok := strings.Cut(a.Text, "="); ok && strings.HasPrefix(a.Text, "--") { // --file=NAME
		ways = append(ways, file)
	}
	for _, name := range ways {
		if paths.Secret(name) {
			w.found.Object(a.Text)
			w.found.Effect(sallyport.EffectRead)
			w.found.Add(sallyport.Medium, "reads %s, which holds secrets", a.Text)
			w.secret = cmp.Or(w.secret, a.Text)
			return
		}
	}
}

func (w *walk) readsAll(args []arg) {
	for _, a := range args {
		w.reads(a)
	}
}

// environment judges X=1 before a command, and export X=1.
func (w *walk) environment(a *syntax.Assign) {
	if a.Name == nil || a.Naked {
		return
	}
	if value, ok := constant(a.Value); known.Env(a.Name.Value) && !(ok && known.Harmless(a.Name.Value, value)) {
		w.hide()
		w.unknown("sets %s, which changes what other programs run", a.Name.Value)
	}
}
