package shell

import (
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/shell/git"
	"sallyport.dev/sallyport/risk/shell/known"
	"sallyport.dev/sallyport/risk/shell/word"
)

func (w *walk) git(args []arg) {
	for len(args) > 0 && args[0].Option() {
		a := args[0]
		switch {
		case a.Loose:
			w.unknown("git is given a word that is made at run time")
			return
		case a.Text == "-C" && len(args) > 1:
			w.enters(args[1])
			args = args[2:]
			continue
		case a.Is("-c") && len(args) > 1 && git.Tame(args[1]):
			args = args[2:]
			continue
		case a.Is("--no-pager", "-P", "--no-optional-locks", "--bare", "--literal-pathspecs", "--no-replace-objects", "--no-lazy-fetch"):
		case a.Text == "--version" || a.Text == "--help":
			return
		default:
			w.hide()
			w.unknown("git is given %s, which can make it run other programs", a.Text)
			if a.Is("-c", "--exec-path", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix") && len(args) > 1 {
				args = args[1:]
			}
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	if !args[0].Literal() {
		w.unknown("git is given a word that is made at run time")
		return
	}
	verb, args := args[0].Text, args[1:]
	if word.OnlyHelp(args) {
		return
	}
	w.gitVerb(verb, args)
}

func (w *walk) gitVerb(verb string, args []arg) {
	w.readsAll(args)
	if bad := git.Acts(verb, args); bad != "" {
		w.hide()
		w.unknown("git %s is given %s, which can run a program", verb, bad)
	}
	if git.Plants(verb, args) {
		w.hide()
		w.unknown("git %s sets something by which git runs programs later", verb)
	}
	if slices.ContainsFunc(args, func(a arg) bool { return a.Loose }) && verb != "add" && verb != "commit" {
		w.unknown("git %s is given a word that is made at run time", verb)
	}
	switch verb {
	case "mv":
		for _, a := range args {
			w.place(a)
			w.placeFolder(a)
		}
	case "push", "pull", "fetch", "clone", "ls-remote", "submodule":
		w.network("git " + verb)
	}
	if lost := git.Loses(verb, args); lost != "" {
		w.lost("git %s %s", verb, lost)
		w.found.Effect(sallyport.EffectWrite)
		return
	}
	shows := git.Shows(verb, args)
	switch {
	case git.Reads(verb) || shows:
		w.found.Effect(sallyport.EffectRead)
		if git.Credentials(verb, args) {
			w.found.Add(sallyport.Medium, "shows settings of git, and addresses may hold credentials")
		}
		p, _ := known.Find("git:read")
		if r := p.Options.Read(args, false); r.Bad != "" && (!shows || git.HandsOn(verb)) {
			w.unknown("git %s is given option %s, which is not known to be harmless", verb, r.Bad)
		}
	case git.Writes(verb):
		w.changed("git %s changes the repository or its files", verb)
	default:
		w.hide()
		w.unknown("git %s is not known to be harmless: it may be an alias", verb)
	}
}
