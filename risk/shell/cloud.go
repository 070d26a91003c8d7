package shell

import (
	"cmp"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
	"sallyport.dev/sallyport/risk/shell/client"
	"sallyport.dev/sallyport/risk/shell/container"
	"sallyport.dev/sallyport/risk/shell/verbs"
)

// Shows tells words that a shell may take for a command which only shows
// something. How the shell takes them is for the judge to say.
func Shows(words []string) bool {
	args := make([]arg, 0, len(words))
	for _, s := range words[1:] {
		args = append(args, arg{Text: s, Known: true})
	}
	_, ok := verbs.Looks(words[0], args)
	return ok
}

// clouds judges the programs of clouds and clusters by package cloud. A word
// that is made at run time is not seen; one that may be several words could be
// anything.
func (w *walk) clouds(name string, args []arg) bool {
	argv := []string{name}
	for _, a := range args {
		if a.Known {
			argv = append(argv, a.Text)
		} else {
			argv = append(argv, cloud.Unseen)
		}
	}
	r, ok := cloud.Command(argv)
	if !ok {
		return false
	}
	if cloud.Help(argv) {
		return true
	}
	if text, ok := client.BigQuery(args); ok && name == "bq" {
		w.network("bq")
		w.found.Effect(sallyport.EffectRead)
		w.found.Merge(w.judge.SQL("postgres", text))
		return true
	}
	for _, a := range args {
		if a.Loose {
			w.unknown("%s is given a word that is made at run time", name)
			break
		}
	}
	if odd := verbs.Odd(name, args); odd != "" && r.Level < sallyport.High {
		w.hide()
		w.unknown("%s is given option %s: it may run a program, write, or reach elsewhere", name, odd)
	}
	r.Parts = nil // the command as it is written is shown
	if r.Level == sallyport.Critical && !r.Irreversible {
		w.hide()
		if slices.ContainsFunc(args, func(a arg) bool { return a.Is("exec", "run", "debug") }) {
			w.anywhere(args) // of a container: what it runs stands among the words
		}
	}
	if r.Level == sallyport.Medium { // what it prints is secret
		w.secret = cmp.Or(w.secret, "secrets by "+name)
	}
	w.found.Merge(r)
	return true
}

// contained judges a command that runs in a container as it would here: what the
// container makes of its name is as little known as for any other machine.
func (w *walk) contained(name string, args []arg, stdin string) bool {
	e, ok := container.Read(name, args)
	if !ok {
		return false
	}
	w.found.Effect(sallyport.EffectNetwork)
	w.found.Effect(sallyport.EffectExecute)
	for _, a := range e.Sets {
		w.setsEnv(a)
	}
	w.command(e.Argv, stdin)
	return true
}
