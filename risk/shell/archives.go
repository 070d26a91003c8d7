package shell

import (
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/known"
	"sallyport.dev/sallyport/risk/shell/tar"
	"sallyport.dev/sallyport/risk/shell/word"
)

func (w *walk) tar(args []arg) {
	w.readsAll(args)
	t := tar.Read(args)
	for _, option := range t.Deletes {
		w.lost("tar deletes: %s", option)
	}
	if t.Unknown != "" {
		w.hide()
		w.unknown("tar is given %s, which can run a program or is not known", t.Unknown)
	}
	if strings.Contains(t.Archive.Text, ":") {
		w.hide()
		w.unknown("tar is given an archive on another machine, which it reaches by a program")
	}
	switch {
	case t.Does("x") && !t.Prints:
		w.changed("unpacks files")
		if t.Folder.Text != "" {
			w.place(arg{Text: strings.TrimSuffix(t.Folder.Text, "/") + "/"})
		}
		if !t.Keeps && !t.Folder.Fresh {
			w.lost("unpacks files over others of the same name: what those held cannot be brought back")
		}
	case t.Does("c"):
		w.found.Effect(sallyport.EffectRead)
		if t.Named && !t.Archive.Is("-") {
			w.changed("writes an archive")
			w.writes(t.Archive, paths.Overwrites)
		}
	case t.Does("ru"):
		w.writes(t.Archive, paths.Appends)
	case t.Does("tdx"):
		w.found.Effect(sallyport.EffectRead)
	case !word.OnlyHelp(args):
		w.unknown("tar is told nothing that is known")
	}
}

func (w *walk) rsync(args []arg) {
	w.touched(args)
	w.readsAll(args)
	var plain []arg
	deletes := false
	for _, a := range args {
		if strings.HasPrefix(a.Text, "--del") || strings.HasPrefix(a.Text, "--remove-s") || strings.HasPrefix(a.Text, "--force") {
			deletes = true
			continue
		}
		plain = append(plain, a)
	}
	p, _ := known.Find("rsync:all")
	r := p.Options.Read(plain, false)
	if r.Bad != "" {
		w.hide()
		w.unknown("rsync is given option %s, which can run a program or is not known", r.Bad)
	}
	w.doubts("rsync", r)
	prints := r.Bad == "" && slices.ContainsFunc(r.Given, func(g word.Given) bool { return g.Kind.Prints && (!deletes || g.Name != "--list-only") })
	keeps := slices.ContainsFunc(r.Given, func(g word.Given) bool { return g.Kind.Keeps })
	for _, a := range r.Rest {
		if strings.Contains(a.Text, ":") {
			w.network("rsync")
		}
	}
	if deletes && !prints {
		w.lost("deletes files that the source does not have")
	}
	switch {
	case prints, len(r.Rest) < 2 && r.Bad == "" && !deletes:
		w.found.Effect(sallyport.EffectRead)
	case len(r.Rest) > 0:
		target := r.Rest[len(r.Rest)-1]
		w.place(target)
		w.placeInto(target, r.Rest[:len(r.Rest)-1])
		w.changed("copies files")
		if !keeps {
			w.lost("copies files over others of the same name: what those held cannot be brought back")
		}
	}
}
